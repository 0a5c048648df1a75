// Addresses of the Table service.

import { quoted } from "./edm.js";
import { InputError } from "./errors.js";

/** Percent-encodes all that has a meaning in an address. @param {string} text */
const encode = (text) =>
  encodeURIComponent(text).replace(/[!*()]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/** A name as one part of a path, which leads nowhere else. @param {string} name */
export function segment(name) {
  if (/^\.*$/.test(name)) throw new InputError(`"${name}" is not a valid name.`);
  return encode(name);
}

/** @param {string} table @param {string} partitionKey @param {string} rowKey */
export function entityAddress(table, partitionKey, rowKey) {
  return `${segment(table)}(PartitionKey=${encode(quoted(partitionKey))},RowKey=${encode(quoted(rowKey))})`;
}

/** @param {string} table */
export const tableAddress = (table) => `Tables('${encode(table)}')`;
