// Deletes entities: first the count, then the name of the table, then progress.

import { count as countFound, deleteFound, deleteThese } from "../core/bulk.js";
import { h } from "../core/dom.js";
import { inWords, isCancelled } from "../core/errors.js";
import { Job } from "../core/job.js";
import { count } from "./controls.js";
import { runJob } from "./job-dialog.js";
import { confirmByName } from "./modal.js";

const WORDS = { done: "deleted", skipped: "left alone, because they were changed or deleted meanwhile" };

/**
 * @param {Source} source
 * @param {Entity[] | null} selected those to delete; null: all that the filter finds
 * @returns {Promise<boolean>} whether deletion began
 */
export async function askAndDelete(source, selected) {
  const counting = new Job();
  const found = h(
    "p",
    { class: "count", role: "status" },
    selected ? `${count(selected.length)} selected` : "Counting…",
  );
  let isConfirmed = false;
  const modal = confirmByName({
    title: "Delete entities",
    text: selected ? `The selected entities of ${source.table} will be deleted.` : whatIsFound(source),
    name: source.table,
    action: "Delete",
    more: found,
    act: async () => {
      isConfirmed = true;
    },
  });
  if (!selected) countInto(found, source, counting);
  await modal.closed;
  counting.cancel();
  if (!isConfirmed) return false;
  await runJob(`Delete from ${source.table}`, {
    ...WORDS,
    total: selected ? selected.length : counting.done,
    work: (job) => (selected ? deleteThese(source, selected, job) : deleteFound(source, job)),
  });
  return true;
}

/** @param {Source} source */
const whatIsFound = ({ table, filter }) =>
  filter
    ? `All entities of ${table} that match ${filter} will be deleted.`
    : `All entities of ${table} will be deleted: there is no filter.`;

/** @param {HTMLElement} place @param {Source} source @param {Job} job */
async function countInto(place, source, job) {
  job.addEventListener("progress", () => {
    place.textContent = `Counting: ${count(job.done)} so far`;
  });
  try {
    await countFound(source, job);
    place.textContent = `${count(job.done)} found`;
  } catch (error) {
    if (!isCancelled(error)) place.textContent = `Not counted: ${inWords(error)}`;
  }
}
