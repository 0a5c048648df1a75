// The columns of a grid of entities: the keys, the Timestamp, and every property that a loaded entity has.

import { compare, isNumber, shortType } from "../core/edm.js";

/** @type {Column[]} */
const KEYS = [
  { id: "PartitionKey", title: "PartitionKey", width: 150, text: (row) => row.partitionKey, style: () => "key" },
  { id: "RowKey", title: "RowKey", width: 150, text: (row) => row.rowKey, style: () => "key" },
  { id: "Timestamp", title: "Timestamp", width: 240, text: (row) => row.timestamp, style: () => "quiet" },
];

/** Pixels that most values of a type need. @type {Record<EdmType, number>} */
const WIDTHS = {
  "Edm.String": 180, "Edm.Int32": 110, "Edm.Int64": 180, "Edm.Double": 180, "Edm.Boolean": 100, "Edm.DateTime": 240, "Edm.Guid": 290, "Edm.Binary": 180,
};

/** @param {Entity[]} entities @returns {Map<string, Set<EdmType>>} the types that each property has */
export function typesOf(entities) {
  const found = new Map();
  for (const { properties } of entities) {
    for (const [name, { type }] of properties) {
      const types = found.get(name);
      if (types) types.add(type);
      else found.set(name, new Set([type]));
    }
  }
  return found;
}

/** @param {Entity[]} entities @param {Set<string>} hidden @returns {Column[]} */
export function columnsOf(entities, hidden) {
  const types = typesOf(entities);
  const properties = [...types].map(([name, found]) => propertyColumn(name, [...found]));
  return [...KEYS, ...properties].filter(({ id }) => !hidden.has(id));
}

/** @param {string} name @param {EdmType[]} types @returns {Column} */
function propertyColumn(name, types) {
  return {
    id: name, title: name, hint: types.length === 1 ? shortType(types[0]) : "mixed", isNumber: types.every(isNumber),
    width: Math.min(320, Math.max(...types.map((type) => WIDTHS[type]), name.length * 8 + 80)),
    text: (row) => row.properties.get(name)?.text ?? "",
    style: (row) => styleOf(row.properties.get(name)),
    compare: (a, b) => compareProperties(a.properties.get(name), b.properties.get(name)),
  };
}

/** @param {Value | undefined} value */
function styleOf(value) {
  if (!value) return "absent";
  return value.type === "Edm.String" ? (value.text === "" ? "blank" : "") : `type-${shortType(value.type).toLowerCase()}`;
}

/** Entities without the property come last. @param {Value | undefined} a @param {Value | undefined} b */
function compareProperties(a, b) {
  if (a && b) return compare(a, b);
  return Number(!a) - Number(!b);
}
