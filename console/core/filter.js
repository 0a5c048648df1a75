// Filters from the clauses of the builder.

import { literalOf, quoted } from "./edm.js";

/** @type {[Operator, string][]} */
export const OPERATORS = [
  ["eq", "is"],
  ["ne", "is not"],
  ["gt", "is above"],
  ["ge", "is at least"],
  ["lt", "is below"],
  ["le", "is at most"],
  ["begins", "begins with"],
  ["endswith", "ends with"],
  ["contains", "contains"],
  ["missing", "is missing"],
  ["present", "exists"],
];

/** Those that compare with a string. @type {Operator[]} */
export const TEXT_OPERATORS = ["begins", "endswith", "contains"];
/** Those that need no value. @type {Operator[]} */
export const UNARY_OPERATORS = ["missing", "present"];

/** @param {Clause[]} clauses @returns {string} `and` binds closer than `or` */
export function filterOf(clauses) {
  return clauses.map((clause, index) => (index ? `${clause.join} ` : "") + comparison(clause)).join(" ");
}

/**
 * The form that every program may use, where there is one: the others are extended queries, which an account must
 * have. @param {Clause} clause
 */
function comparison({ property, operator, value }) {
  if (operator === "missing") return `${property} eq null`;
  if (operator === "present") return `${property} ne null`;
  if (operator === "endswith" || operator === "contains") return `${operator}(${property},${quoted(value.text)})`;
  if (operator !== "begins") return `${property} ${operator} ${literalOf(value)}`;
  const end = successor(value.text);
  return end === null
    ? `${property} ge ${quoted(value.text)}`
    : `(${property} ge ${quoted(value.text)} and ${property} lt ${quoted(end)})`;
}

/** The least text after all that begin with this one. @param {string} text @returns {string | null} null if there is none */
export function successor(text) {
  const points = Array.from(text, (char) => char.codePointAt(0) ?? 0);
  while (points.length) {
    const last = points.pop() ?? 0;
    if (last >= 0x10ffff) continue;
    // Surrogates are no characters.
    points.push(last === 0xd7ff ? 0xe000 : last + 1);
    return String.fromCodePoint(...points);
  }
  return null;
}
