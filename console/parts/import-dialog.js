// Reads a CSV or NDJSON file into a table.

import { imported, preview } from "../core/bulk.js";
import { shortType } from "../core/edm.js";
import { h } from "../core/dom.js";
import { InputError, inWords, RequestError } from "../core/errors.js";
import { visible } from "../core/visible.js";
import { errorBox, field, input, select } from "./controls.js";
import { runJob } from "./job-dialog.js";
import { Modal } from "./modal.js";

const PREVIEWED = 5;
/** The limits of the preview: properties, and characters of a value. */
const MAX_COLUMNS = 8;
const MAX_CHARACTERS = 40;
/** @type {[Mode, string][]} */
const MODES = [
  ["insert", "Keep the entity in the table"],
  ["replace", "Replace the entity in the table"],
  ["merge", "Merge into the entity in the table"],
];

/** @param {TableService} service @param {string} [table] if absent, its name is asked for @returns {Promise<boolean>} whether the import began */
export async function askAndImport(service, table) {
  const file = input({ type: "file", accept: ".csv,.tsv,.txt,.ndjson,.jsonl,.json", on: { change: () => show() } });
  const name = input({ class: "mono", value: table ?? "", readOnly: Boolean(table) });
  const mode = select(MODES, "insert");
  const sample = h("div", { class: "sample" });
  let isChosen = false;
  const modal = new Modal(
    "Import",
    [
      field(
        "File",
        file,
        "CSV with a column Name@type for each column Name, or NDJSON: one JSON object per line, with Name@odata.type.",
      ),
      field("Table", name, table ? undefined : "The import creates the table if it does not exist."),
      field("If the keys exist already", mode),
      sample,
    ],
    {
      wide: true,
      action: {
        text: "Import",
        act: async () => {
          if (!file.files?.[0]) throw new InputError("Choose a file first.");
          if (!name.value.trim()) throw new InputError("Give the table a name.");
          if (!table) await createIfAbsent(service, name.value.trim());
          isChosen = true;
        },
      },
    },
  );
  let suggested = "";
  const show = async () => {
    const [chosen] = file.files ?? [];
    if (!table && name.value === suggested) name.value = suggested = nameFor(chosen);
    sample.replaceChildren(await previewOf(chosen));
  };
  await modal.open().closed;
  const chosen = file.files?.[0];
  if (!isChosen || !chosen) return false;
  await runJob(`Import ${chosen.name}`, {
    done: "written",
    skipped: "already there",
    work: (job) =>
      imported(
        { service, table: name.value.trim(), filter: "" },
        chosen,
        formatOf(chosen),
        /** @type {Mode} */ (mode.value),
        job,
      ),
  });
  return true;
}

/** A name for the table of a file: that of the file, with what a name may have. @param {File | undefined} file */
const nameFor = (file) =>
  (file?.name ?? "")
    .replace(/\..*$/s, "")
    .replace(/[^A-Za-z0-9]/g, "")
    .replace(/^\d+/, "")
    .slice(0, 63);

/** @param {File} file @returns {Format} */
const formatOf = (file) => (/\.(csv|tsv|txt)$/i.test(file.name) ? "csv" : "ndjson");

/** @param {TableService} service @param {string} table */
async function createIfAbsent(service, table) {
  try {
    await service.createTable(table);
  } catch (error) {
    if (!(error instanceof RequestError && error.code === "TableAlreadyExists")) throw error;
  }
}

/** The first entities of a file, so that their types can be seen. @param {File | undefined} file */
async function previewOf(file) {
  if (!file) return "";
  try {
    return tableOf(await preview(file, formatOf(file), PREVIEWED));
  } catch (error) {
    return errorBox(error);
  }
}

/** @param {Read[]} found */
function tableOf(found) {
  const all = [...new Set(found.flatMap(({ entity }) => (entity ? [...entity.properties.keys()] : [])))];
  const names = all.slice(0, MAX_COLUMNS);
  const heads = ["Place", "PartitionKey", "RowKey", ...names].map((name) => h("th", { scope: "col" }, visible(name)));
  const table = h(
    "table",
    { class: "plain" },
    h("caption", {}, captionOf(found.length, all.length)),
    h("thead", {}, h("tr", {}, heads)),
    h(
      "tbody",
      {},
      found.map((read) => rowOf(read, names)),
    ),
  );
  return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Preview" }, table);
}

/** @param {number} rows @param {number} properties */
function captionOf(rows, properties) {
  const more = properties > MAX_COLUMNS ? ` ${properties - MAX_COLUMNS} more properties are not shown.` : "";
  return `${rows === 1 ? "The first entity" : `The first ${rows} entities`} of the file.${more}`;
}

/** @param {Read} read @param {string[]} names */
function rowOf({ place, entity, error }, names) {
  const head = h("th", { scope: "row" }, place);
  if (!entity) return h("tr", {}, head, h("td", { class: "wrong", colSpan: names.length + 2 }, inWords(error)));
  const keys = [entity.partitionKey, entity.rowKey].map((key) => h("td", { class: "mono" }, shortened(key)));
  const cells = names.map((name) => {
    const value = entity.properties.get(name);
    return h("td", {}, value && [h("span", { class: "mono" }, shortened(value.text)), " ", h("small", {}, shortType(value.type))]);
  });
  return h("tr", {}, head, keys, cells);
}

/** @param {string} text */
const shortened = (text) => visible(text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text);
