// Writes what a filter finds into a file of the browser's downloads.

import { exported } from "../core/bulk.js";
import { h } from "../core/dom.js";
import { field, select } from "./controls.js";
import { runJob } from "./job-dialog.js";
import { Modal } from "./modal.js";

/** @param {Source} source */
export async function askAndExport(source) {
  const format = select(
    [
      ["ndjson", "NDJSON: one line of JSON per entity"],
      ["csv", "CSV, as Storage Explorer writes it"],
    ],
    "ndjson",
  );
  let isChosen = false;
  const modal = new Modal(
    `Export ${source.table}`,
    [
      h(
        "p",
        {},
        source.filter ? `All entities that match ${source.filter}, on all pages.` : "All entities, on all pages.",
      ),
      field("Format", format, "Both keep all types. CSV reads the table twice, because its columns come first."),
    ],
    {
      action: {
        text: "Export",
        act: () => {
          isChosen = true;
        },
      },
    },
  );
  await modal.open().closed;
  if (!isChosen) return;
  const chosen = /** @type {Format} */ (format.value);
  await runJob(`Export ${source.table}`, {
    done: "exported",
    skipped: "looked through for columns",
    work: async (job) =>
      download(await exported(source, chosen, job), `${source.table}${chosen === "csv" ? ".typed.csv" : ".ndjson"}`),
  });
}

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  // The browser needs the address until it has begun to read.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
