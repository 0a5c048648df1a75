// The columns of a grid of entities: the keys, the Timestamp, and every property that a loaded entity has.

import { compare, isNumber, shortType } from "../core/edm.js";

/** Rows whose values decide on the widths of columns, and pixels. */
const SAMPLED = 50;
const CHARACTER = 7.7;
const TITLE_CHARACTER = 8.6;
const PADDING = 24;
const GAP = 6;
/** The sign of the sorted column. */
const ARROW = 18;
const MAX_WIDTH = 340;
/** Windows that are narrower than this show more columns at once. */
const NARROW = 720;
const MAX_NARROW_WIDTH = 170;

/** @type {Column[]} */
const KEYS = [
  { id: "PartitionKey", title: "PartitionKey", text: (row) => row.partitionKey, style: () => "key" },
  { id: "RowKey", title: "RowKey", text: (row) => row.rowKey, style: () => "key" },
  { id: "Timestamp", title: "Timestamp", text: (row) => row.timestamp, style: () => "quiet" },
];

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

/**
 * The columns of some entities, without the hidden ones. A column that the server sorts by is there in any case: the
 * entities that come first may lack its property.
 * @param {Entity[]} entities @param {Set<string>} hidden @param {Orders} orders @param {Sorted | null} sorted
 * @returns {Column[]}
 */
export function columnsOf(entities, hidden, orders, sorted) {
  const types = typesOf(entities);
  const kept = orders.text(sorted) ? sorted?.id : undefined;
  if (kept && !types.has(kept) && !KEYS.some(({ id }) => id === kept)) types.set(kept, new Set());
  const properties = [...types].map(([name, found]) => propertyColumn(name, [...found]));
  const sample = entities.slice(0, SAMPLED);
  return [...KEYS, ...properties]
    .filter(({ id }) => id === kept || !hidden.has(id))
    .map((column) => ordered(column, orders))
    .map((column) => ({ ...column, width: widthOf(column, sample) }));
}

/** A column that says what sorting by it sorts. @param {Column} column @param {Orders} orders @returns {Column} */
function ordered(column, orders) {
  const isSortedByServer = orders.has(column.id);
  const hint = [column.hint, isSortedByServer && "indexed"].filter(Boolean).join(" · ");
  return { ...column, hint, isSortedByServer, sorting: orders.words(column.id) };
}

/** As wide as its title and its first values need, within limits. @param {Column} column @param {Entity[]} sample */
function widthOf({ title, hint = "", text }, sample) {
  const longest = sample.reduce((most, entity) => Math.max(most, text(entity).length), 0);
  const head = title.length * TITLE_CHARACTER + (hint ? hint.length * CHARACTER + GAP : 0) + PADDING + ARROW;
  const most = innerWidth < NARROW ? MAX_NARROW_WIDTH : MAX_WIDTH;
  return Math.round(Math.max(Math.min(most, head), Math.min(most, longest * CHARACTER + PADDING)));
}

/** @param {string} name @param {EdmType[]} types @returns {Column} */
function propertyColumn(name, types) {
  return {
    id: name,
    title: name,
    hint: types.length > 1 ? "mixed" : types.map(shortType).join(),
    isNumber: types.every(isNumber),
    text: (row) => row.properties.get(name)?.text ?? "",
    style: (row) => styleOf(row.properties.get(name)),
    compare: (a, b) => compareProperties(a.properties.get(name), b.properties.get(name)),
  };
}

/** @param {Value | undefined} value */
function styleOf(value) {
  if (!value) return "absent";
  return value.type === "Edm.String"
    ? value.text === ""
      ? "blank"
      : ""
    : `type-${shortType(value.type).toLowerCase()}`;
}

/** Entities without the property come last. @param {Value | undefined} a @param {Value | undefined} b */
function compareProperties(a, b) {
  if (a && b) return compare(a, b);
  return Number(!a) - Number(!b);
}
