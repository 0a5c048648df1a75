// Work on many entities: count, delete, export, import.

import { CsvEntities, CsvReader, csvEntity, csvHeader } from "./csv.js";
import { inWords, InputError } from "./errors.js";
import { entityOfLine, lineOf } from "./ndjson.js";
import { Writer } from "./writer.js";

/** Counts what a filter finds. @param {Source} source @param {Job} job */
export async function count({ service, table, filter }, job) {
  let token = null;
  do {
    const page = await service.countPage(table, { filter }, token, job.signal);
    job.advance(page.count);
    token = page.next;
  } while (token);
}

/** All pages that a query finds. @param {Source} source @param {Query} query @param {AbortSignal} signal */
async function* pages({ service, table, filter }, query, signal) {
  let token = null;
  do {
    const page = await service.query(table, { ...query, filter }, token, signal);
    yield page.entities;
    token = page.next;
  } while (token);
}

/** Adds writes until all are done, or until an error: then what is under way ends first. @param {Writer} writer @param {(writer: Writer) => Promise<void>} add */
async function writing(writer, add) {
  try {
    await add(writer);
    await writer.finish();
  } finally {
    await writer.settled();
  }
}

/** Whether an entity that was to be deleted has changed or gone meanwhile: then it is left alone. */
const isOvertaken = (/** @type {RequestError} */ error) =>
  error.code === "UpdateConditionNotSatisfied" || error.code === "ResourceNotFound";

/** Deletes what a filter finds, except what is written meanwhile. @param {Source} source @param {Job} job */
export async function deleteFound(source, job) {
  await writing(new Writer(source.service, job, isOvertaken), async (writer) => {
    for await (const entities of pages(source, { select: "PartitionKey,RowKey" }, job.signal)) {
      for (const entity of entities) await writer.add(deletion(source.table, entity));
    }
  });
}

/** Deletes these, except those that were written since they were read. @param {Source} source @param {Entity[]} entities @param {Job} job */
export async function deleteThese(source, entities, job) {
  const inOrder = [...entities].sort((a, b) => (a.partitionKey < b.partitionKey ? -1 : 1));
  await writing(new Writer(source.service, job, isOvertaken), async (writer) => {
    for (const entity of inOrder) await writer.add(deletion(source.table, entity));
  });
}

/** @param {string} table @param {Entity} entity @returns {Placed} */
const deletion = (table, entity) => ({
  kind: "delete",
  table,
  entity,
  place: `${entity.partitionKey} / ${entity.rowKey}`,
});

const PIECE_CHARACTERS = 1 << 20;

/** Writes what a filter finds into a file. @param {Source} source @param {Format} format @param {Job} job @returns {Promise<Blob>} */
export async function exported(source, format, job) {
  const names = format === "csv" ? await propertyNames(source, job) : [];
  /** @type {Blob[]} */
  const pieces = [];
  let text = format === "csv" ? csvHeader(names) : "";
  const known = new Set(names);
  for await (const entities of pages(source, {}, job.signal)) {
    for (const entity of entities) {
      if (format === "csv") requireKnown(entity, known);
      text += format === "csv" ? csvEntity(entity, names) : lineOf(entity);
      if (text.length < PIECE_CHARACTERS) continue;
      // The browser keeps blobs on disk once they are many.
      pieces.push(new Blob([text]));
      text = "";
    }
    job.advance(entities.length);
  }
  return new Blob([...pieces, text], { type: format === "csv" ? "text/csv" : "application/x-ndjson" });
}

/** The names of all properties, which CSV needs before its first row. @param {Source} source @param {Job} job */
async function propertyNames(source, job) {
  const names = new Set();
  for await (const entities of pages(source, {}, job.signal)) {
    for (const { properties } of entities) for (const name of properties.keys()) names.add(name);
    job.skip(entities.length);
  }
  job.skipped = 0;
  return [...names].sort();
}

/** @param {Entity} entity @param {Set<string>} known */
function requireKnown({ properties }, known) {
  for (const name of properties.keys()) {
    if (!known.has(name))
      throw new InputError(`The property ${name} was added to the table during the export. Export again.`);
  }
}

const isThere = (/** @type {RequestError} */ error) => error.code === "EntityAlreadyExists";

/** Reads a file into a table. @param {Source} target @param {Blob} file @param {Format} format @param {Mode} mode @param {Job} job */
export async function imported(target, file, format, mode, job) {
  await writing(new Writer(target.service, job, isThere), async (writer) => {
    for await (const { place, entity, error } of entitiesOf(file, format, job.signal)) {
      if (entity) await writer.add({ kind: mode, table: target.table, entity, place });
      else job.fail(`${place}: ${inWords(error)}`);
    }
  });
}

/** The first entities of a file. @param {Blob} file @param {Format} format @param {number} limit */
export async function preview(file, format, limit) {
  const found = [];
  for await (const read of entitiesOf(file, format, new AbortController().signal)) {
    found.push(read);
    if (found.length === limit) break;
  }
  return found;
}

/** @param {Blob} file @param {Format} format @param {AbortSignal} signal @returns {AsyncGenerator<Read>} */
async function* entitiesOf(file, format, signal) {
  yield* format === "csv" ? csvEntities(texts(file, signal)) : lineEntities(texts(file, signal));
}

/** The text of a file, in pieces. @param {Blob} file @param {AbortSignal} signal */
async function* texts(file, signal) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const reader = file.stream().getReader();
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      yield decoder.decode(value, { stream: !done });
      if (done) return;
    }
  } catch (error) {
    if (error instanceof TypeError) throw new InputError("The file is not UTF-8.");
    throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {AsyncGenerator<string>} pieces @returns {AsyncGenerator<Read>} */
async function* csvEntities(pieces) {
  const reader = new CsvReader();
  /** @type {CsvEntities | null} */
  let columns = null;
  let number = 0;
  const read = (/** @type {string[][]} */ rows) =>
    rows.flatMap((row) => {
      if (!columns) return ((columns = new CsvEntities(row)), []);
      number += 1;
      return [attempt(`Row ${number}`, row, columns.entity.bind(columns))];
    });
  for await (const piece of pieces) yield* read(reader.push(piece));
  yield* read(reader.push("", true));
  if (!columns) throw new InputError("The file is empty.");
}

/** @param {AsyncGenerator<string>} pieces @returns {AsyncGenerator<Read>} */
async function* lineEntities(pieces) {
  let number = 0;
  let rest = "";
  const read = (/** @type {string} */ line) => {
    number += 1;
    return line.trim() ? [attempt(`Line ${number}`, line, entityOfLine)] : [];
  };
  for await (const piece of pieces) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield* read(line);
  }
  yield* read(rest);
}

/** @template T @param {string} place @param {T} input @param {(input: T) => Entity} make @returns {Read} */
function attempt(place, input, make) {
  try {
    return { place, entity: make(input) };
  } catch (error) {
    return { place, error };
  }
}
