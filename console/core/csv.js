// CSV as Storage Explorer has it: a column for each property, and beside it one for its type, `Name@type`.

import { complaint, typeOf } from "./edm.js";
import { InputError } from "./errors.js";

const DELIMITERS = [",", ";", "\t", "|"];
const TYPE = "@type";
const KEYS = ["PartitionKey", "RowKey", "Timestamp"];

/**
 * Splits text that arrives in pieces into rows. A carriage return ends a row only before a line feed: older versions of
 * Storage Explorer wrote values with carriage returns without quotes.
 */
export class CsvReader {
  /** @type {string[]} */
  #row = [];
  #field = "";
  #isQuoted = false;
  /** Whether the field began with a quote, so that nothing but a delimiter may follow the closing one. */
  #wasQuoted = false;
  #delimiter = "";
  #rest = "";
  /** The number of the line that is being read. */
  line = 1;

  /** @param {string} text @param {boolean} isLast @returns {string[][]} the rows that it completes */
  push(text, isLast = false) {
    text = this.#rest + text;
    this.#rest = "";
    if (!this.#delimiter) {
      const end = text.indexOf("\n");
      if (end < 0 && !isLast) return ((this.#rest = text), []);
      const header = end < 0 ? text : text.slice(0, end);
      this.#delimiter = mostFrequent(header);
    }
    /** @type {string[][]} */
    const rows = [];
    // What the last character means may depend on the next one.
    const end = isLast ? text.length : text.length - 1;
    let at = 0;
    while (at < end) at = this.#step(text, at, rows);
    this.#rest = text.slice(at);
    if (isLast) this.#finish(rows);
    return rows;
  }

  /** @param {string} text @param {number} at @param {string[][]} rows @returns {number} where to go on */
  #step(text, at, rows) {
    const char = text[at];
    if (this.#isQuoted) return this.#quoted(text, at);
    if (char === '"' && this.#field === "" && !this.#wasQuoted) {
      this.#isQuoted = this.#wasQuoted = true;
      return at + 1;
    }
    if (char === this.#delimiter) return (this.#endField(), at + 1);
    if (char === "\n") return (this.#endRow(rows), at + 1);
    if (char === "\r" && text[at + 1] === "\n") return (this.#endRow(rows), at + 2);
    if (this.#wasQuoted) throw new InputError(`Line ${this.line}: text follows a closing quote.`);
    const stop = this.#plainEnd(text, at + 1);
    this.#field += text.slice(at, stop);
    return stop;
  }

  /** @param {string} text @param {number} at */
  #quoted(text, at) {
    if (text[at] !== '"') {
      let stop = text.indexOf('"', at);
      if (stop < 0) stop = text.length;
      const piece = text.slice(at, stop);
      this.#field += piece;
      for (const char of piece) if (char === "\n") this.line += 1;
      return stop;
    }
    if (text[at + 1] === '"') return ((this.#field += '"'), at + 2);
    this.#isQuoted = false;
    return at + 1;
  }

  /** @param {string} text @param {number} at */
  #plainEnd(text, at) {
    while (at < text.length && text[at] !== this.#delimiter && text[at] !== "\n" && text[at] !== "\r") at += 1;
    // A carriage return at the end waits for what follows.
    return at;
  }

  #endField() {
    this.#row.push(this.#field);
    this.#field = "";
    this.#wasQuoted = false;
  }

  /** @param {string[][]} rows */
  #endRow(rows) {
    this.#endField();
    if (this.#row.length > 1 || this.#row[0] !== "") rows.push(this.#row);
    this.#row = [];
    this.line += 1;
  }

  /** @param {string[][]} rows */
  #finish(rows) {
    if (this.#isQuoted) throw new InputError(`Line ${this.line}: a quote is not closed.`);
    if (this.#field !== "" || this.#wasQuoted || this.#row.length) this.#endRow(rows);
  }
}

/** @param {string} header */
function mostFrequent(header) {
  const count = (/** @type {string} */ delimiter) => header.split(delimiter).length;
  return DELIMITERS.reduce((best, next) => (count(next) > count(best) ? next : best));
}

/** Makes entities of rows. */
export class CsvEntities {
  /** @type {{ name: string, at: number, typeAt: number, first: string }[]} */
  columns = [];

  /** @param {string[]} header */
  constructor(header) {
    const names = header.map((name) => name.trim());
    for (const key of ["PartitionKey", "RowKey"]) {
      if (!names.includes(key)) throw new InputError(`There is no column ${key}.`);
    }
    this.width = names.length;
    names.forEach((name, at) => {
      const isType = name.endsWith(TYPE) && names.includes(name.slice(0, -TYPE.length));
      if (name && !isType) this.columns.push({ name, at, typeAt: names.indexOf(name + TYPE), first: "" });
    });
  }

  /** @param {string[]} row @returns {Entity} @throws {InputError} */
  entity(row) {
    if (row.slice(this.width).some(Boolean)) throw new InputError("The row has more values than the file has columns.");
    const properties = new Map();
    /** @type {Record<string, string>} */
    const keys = {};
    for (const column of this.columns) {
      const text = row[column.at] ?? "";
      const told = row[column.typeAt] ?? "";
      column.first ||= told;
      if (KEYS.includes(column.name)) keys[column.name] = text;
      else if (text !== "" || (told !== "" && told !== "Null"))
        properties.set(column.name, valueOf(column, text, told));
    }
    return { partitionKey: keys.PartitionKey, rowKey: keys.RowKey, timestamp: "", etag: "", properties };
  }
}

/** A blank type is the first one of its column. @param {{ name: string, first: string }} column @param {string} text @param {string} told */
function valueOf(column, text, told) {
  const name = told || column.first || "String";
  const type = typeOf(name);
  if (!type) throw new InputError(`${column.name}: there is no type ${name}.`);
  const value = type === "Edm.Boolean" ? text.toLowerCase() : text;
  const wrong = complaint(type, value);
  if (wrong) throw new InputError(`${column.name}: ${text.slice(0, 64)} is not an ${type}. ${wrong}`);
  return { type, text: value };
}

/** The header of a file. @param {string[]} names of properties */
export function csvHeader(names) {
  return csvRow([...KEYS, ...names.flatMap((name) => [name, name + TYPE])]);
}

/** @param {Entity} entity @param {string[]} names */
export function csvEntity(entity, names) {
  const fields = [entity.partitionKey, entity.rowKey, entity.timestamp];
  for (const name of names) {
    const value = entity.properties.get(name);
    fields.push(value?.text ?? "", value?.type ?? "");
  }
  return csvRow(fields);
}

/** @param {string[]} fields */
function csvRow(fields) {
  return `${fields.map((field) => (/[",;|\r\n\t]|^\s|\s$/.test(field) ? `"${field.replaceAll('"', '""')}"` : field)).join(",")}\r\n`;
}
