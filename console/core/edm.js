// The types of properties. A value is its type and its text; no value ever becomes a number of JavaScript on its way.

/** @type {EdmType[]} */
export const TYPES = [
  "Edm.String",
  "Edm.Int32",
  "Edm.Int64",
  "Edm.Double",
  "Edm.Boolean",
  "Edm.DateTime",
  "Edm.Guid",
  "Edm.Binary",
];

/** The type without its prefix. @param {EdmType} type */
export const shortType = (type) => type.slice("Edm.".length);

/** @param {string} name with or without `Edm.`, in any case @returns {EdmType | undefined} */
export function typeOf(name) {
  const wanted = name.replace(/^Edm\./i, "").toLowerCase();
  return TYPES.find((type) => shortType(type).toLowerCase() === wanted);
}

export const isNumber = (/** @type {EdmType} */ type) =>
  type === "Edm.Int32" || type === "Edm.Int64" || type === "Edm.Double";

const INTEGER = /^-?\d{1,20}$/;
const DOUBLE = /^(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|-?Infinity)$/;
const DATE = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,7})?)?(?:Z|[+-]\d\d:\d\d)$/;
const GUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** @param {string} text @param {bigint} bits @returns {boolean} */
function fits(text, bits) {
  if (!INTEGER.test(text)) return false;
  const value = BigInt(text);
  return value >= -(1n << (bits - 1n)) && value < 1n << (bits - 1n);
}

/** What is wrong with a text as a value of this type, or "". @param {EdmType} type @param {string} text */
export function complaint(type, text) {
  switch (type) {
    case "Edm.String":
      return text.isWellFormed?.() === false ? "Half of a surrogate pair cannot be stored." : "";
    case "Edm.Int32":
      return fits(text, 32n) ? "" : "A whole number from -2147483648 to 2147483647.";
    case "Edm.Int64":
      return fits(text, 64n) ? "" : "A whole number from -9223372036854775808 to 9223372036854775807.";
    case "Edm.Double":
      return DOUBLE.test(text) ? "" : "A number such as 1.5 or -2E+30, or NaN, Infinity, -Infinity.";
    case "Edm.Boolean":
      return text === "true" || text === "false" ? "" : "true or false.";
    case "Edm.DateTime":
      return DATE.test(text) ? "" : "A time such as 2026-11-24T21:30:00.1234567Z.";
    case "Edm.Guid":
      return GUID.test(text) ? "" : "A GUID such as c9da6455-213d-42c9-9a79-3e9149a57833.";
    case "Edm.Binary":
      return BASE64.test(text) ? "" : "Base64, whose length is a multiple of four.";
  }
}

/** The JSON of a value. @param {Value} value */
export function jsonOf({ type, text }) {
  if (type === "Edm.Boolean" || type === "Edm.Int32") return text.replace(/^(-?)0+(?=\d)/, "$1");
  return JSON.stringify(text);
}

/** Whether a property needs its annotation. @param {EdmType} type */
export const isAnnotated = (type) => type !== "Edm.String" && type !== "Edm.Boolean" && type !== "Edm.Int32";

/** A literal in a `$filter`. @param {Value} value */
export function literalOf({ type, text }) {
  switch (type) {
    case "Edm.String":
      return quoted(text);
    case "Edm.Int64":
      return `${text}L`;
    case "Edm.Double":
      return text.replace("Infinity", "INF").replace(/^(-?\d+)$/, "$1.0");
    case "Edm.DateTime":
      return `datetime'${text}'`;
    case "Edm.Guid":
      return `guid'${text}'`;
    case "Edm.Binary":
      return `X'${hex(text)}'`;
    default:
      return text;
  }
}

/** A string in a filter or an address. @param {string} text */
export const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

/** @param {string} base64 */
function hex(base64) {
  return Array.from(atob(base64), (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}

/** Orders values as a reader expects: numbers by size, all else by code unit; types apart. @param {Value} a @param {Value} b */
export function compare(a, b) {
  if (isNumber(a.type) && isNumber(b.type)) return compareNumbers(a, b);
  const [left, right] = a.type === b.type ? [a.text, b.text] : [a.type, b.type];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** @param {Value} a @param {Value} b */
function compareNumbers(a, b) {
  const [x, y] =
    a.type !== "Edm.Double" && b.type !== "Edm.Double"
      ? [BigInt(a.text), BigInt(b.text)]
      : [Number(a.text), Number(b.text)];
  return x < y ? -1 : x > y ? 1 : 0;
}
