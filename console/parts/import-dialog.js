// Reads a CSV or NDJSON file into a table.

import { imported, preview } from "../core/bulk.js";
import { shortType } from "../core/edm.js";
import { h } from "../core/dom.js";
import { InputError, inWords, RequestError } from "../core/errors.js";
import { errorBox, field, input, select } from "./controls.js";
import { visible } from "./data-grid.js";
import { runJob } from "./job-dialog.js";
import { Modal } from "./modal.js";

const PREVIEWED = 5;
/** @type {[Mode, string][]} */
const MODES = [
  ["insert", "Leave those that exist"],
  ["replace", "Replace those that exist"],
  ["merge", "Merge into those that exist"],
];

/** @param {TableService} service @param {string} [table] if absent, its name is asked for @returns {Promise<boolean>} whether the import began */
export async function askAndImport(service, table) {
  const file = input({ type: "file", accept: ".csv,.tsv,.txt,.ndjson,.jsonl,.json", on: { change: () => show() } });
  const name = input({ class: "mono", value: table ?? "", readOnly: Boolean(table) });
  const mode = select(MODES, "insert");
  const sample = h("div", { class: "sample scroll-x" });
  let isChosen = false;
  const modal = new Modal(
    "Import",
    [
      field(
        "File",
        file,
        "CSV with a column Name@type for each Name, or NDJSON: one JSON object a line, with Name@odata.type.",
      ),
      field("Table", name, table ? undefined : "It is created if it is not there."),
      field("Entities with the same keys", mode),
      sample,
    ],
    {
      wide: true,
      action: {
        text: "Import",
        act: async () => {
          if (!file.files?.[0]) throw new InputError("Choose a file first.");
          if (!table) await createIfAbsent(service, name.value);
          isChosen = true;
        },
      },
    },
  );
  const show = async () => sample.replaceChildren(await previewOf(file.files?.[0]));
  await modal.open().closed;
  const chosen = file.files?.[0];
  if (!isChosen || !chosen) return false;
  await runJob(`Import ${chosen.name}`, {
    done: "written",
    skipped: "there already",
    work: (job) =>
      imported(
        { service, table: name.value, filter: "" },
        chosen,
        formatOf(chosen),
        /** @type {Mode} */ (mode.value),
        job,
      ),
  });
  return true;
}

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
    const found = await preview(file, formatOf(file), PREVIEWED);
    return h(
      "ul",
      {},
      found.map(({ place, entity, error }) =>
        h("li", {}, `${place}: `, entity ? described(entity) : h("span", { class: "wrong" }, inWords(error))),
      ),
    );
  } catch (error) {
    return errorBox(error);
  }
}

/** @param {Entity} entity */
function described({ partitionKey, rowKey, properties }) {
  const shown = [...properties]
    .slice(0, 12)
    .map(([name, { type, text }]) => `${name} = ${visible(text.slice(0, 40))} (${shortType(type)})`);
  return h("span", { class: "mono" }, [`${partitionKey} / ${rowKey}`, ...shown].join(", "));
}
