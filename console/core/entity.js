// Entities, and their JSON.

import { isAnnotated, jsonOf, typeOf } from "./edm.js";
import { InputError } from "./errors.js";
import { JsonNumber } from "./json.js";

const ANNOTATION = "@odata.type";
const KEYS = new Set(["PartitionKey", "RowKey", "Timestamp"]);

/** @param {JsonObject} members @returns {Entity} @throws {InputError} */
export function entityOf(members) {
  const properties = new Map();
  for (const [name, found] of members) {
    if (KEYS.has(name) || found === null || isMetadata(name)) continue;
    properties.set(name, valueOf(name, found, members.get(name + ANNOTATION)));
  }
  const text = (/** @type {string} */ name) => {
    const found = members.get(name);
    return typeof found === "string" ? found : "";
  };
  return {
    partitionKey: text("PartitionKey"),
    rowKey: text("RowKey"),
    timestamp: text("Timestamp"),
    etag: text("odata.etag"),
    properties,
  };
}

const isMetadata = (/** @type {string} */ name) => name.startsWith("odata.") || name.includes("@odata.");

/** @param {string} name @param {any} found @param {unknown} annotation @returns {Value} */
function valueOf(name, found, annotation) {
  const type = annotation === undefined ? undefined : typeOf(String(annotation));
  if (annotation !== undefined && !type) throw new InputError(`${name}: there is no type ${annotation}.`);
  if (typeof found === "string") return { type: type ?? "Edm.String", text: found };
  if (typeof found === "boolean") return { type: "Edm.Boolean", text: String(found) };
  if (found instanceof JsonNumber) return { type: type ?? numberType(name, found.text), text: found.text };
  throw new InputError(`${name}: a property cannot be a list or an object.`);
}

/** @param {string} name @param {string} text */
function numberType(name, text) {
  if (/[.eE]/.test(text)) return "Edm.Double";
  if (Math.abs(Number(text)) <= 2147483648) return "Edm.Int32";
  throw new InputError(`${name}: ${text} is beyond Int32 and has no type.`);
}

/** The JSON that is sent for an entity. @param {Entity} entity */
export function jsonOfEntity(entity) {
  const members = [
    member("PartitionKey", JSON.stringify(entity.partitionKey)),
    member("RowKey", JSON.stringify(entity.rowKey)),
  ];
  return `{${[...members, ...jsonOfProperties(entity.properties)].join(",")}}`;
}

/** @param {Map<string, Value>} properties @returns {string[]} the members */
export function jsonOfProperties(properties) {
  const members = [];
  for (const [name, value] of properties) {
    if (isAnnotated(value.type)) members.push(member(name + ANNOTATION, JSON.stringify(value.type)));
    members.push(member(name, jsonOf(value)));
  }
  return members;
}

/** @param {string} name @param {string} json */
export const member = (name, json) => `${JSON.stringify(name)}:${json}`;

/** Whether two values are the same to the last bit. @param {Value | undefined} a @param {Value | undefined} b */
export const isSame = (a, b) => a?.type === b?.type && a?.text === b?.text;
