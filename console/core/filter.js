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
];

/** @param {Clause[]} clauses @returns {string} `and` binds closer than `or` */
export function filterOf(clauses) {
  return clauses.map((clause, index) => (index ? `${clause.join} ` : "") + comparison(clause)).join(" ");
}

/** @param {Clause} clause */
function comparison({ property, operator, value }) {
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
