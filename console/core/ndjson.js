// Lines of JSON with type annotations, as the dumps of `rowhouse copy` have them.

import { complaint } from "./edm.js";
import { entityOf, jsonOfProperties, member } from "./entity.js";
import { InputError } from "./errors.js";
import { parseJson } from "./json.js";

/** @param {string} line @returns {Entity} @throws {InputError} */
export function entityOfLine(line) {
  const members = parsed(line);
  for (const key of ["PartitionKey", "RowKey"]) {
    if (typeof members.get(key) !== "string") throw new InputError(`The string ${key} is missing.`);
  }
  const entity = entityOf(members);
  for (const [name, { type, text }] of entity.properties) {
    const wrong = complaint(type, text);
    if (wrong) throw new InputError(`${name}: ${text.slice(0, 64)} is not an ${type}. ${wrong}`);
  }
  return { ...entity, etag: "" };
}

/** @param {string} line */
function parsed(line) {
  let value;
  try {
    value = parseJson(line);
  } catch (error) {
    throw new InputError(error instanceof Error ? error.message : String(error));
  }
  if (!(value instanceof Map)) throw new InputError("It is not a JSON object.");
  return value;
}

/** @param {Entity} entity */
export function lineOf(entity) {
  const members = [
    member("PartitionKey", JSON.stringify(entity.partitionKey)),
    member("RowKey", JSON.stringify(entity.rowKey)),
    member("Timestamp", JSON.stringify(entity.timestamp)),
    ...jsonOfProperties(entity.properties),
  ];
  return `{${members.join(",")}}\n`;
}
