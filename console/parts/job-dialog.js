// The progress of long work, with a button that cancels it and a summary at its end.

import { h } from "../core/dom.js";
import { inWords, isCancelled } from "../core/errors.js";
import { Job } from "../core/job.js";
import { count } from "./controls.js";
import { Modal } from "./modal.js";

/**
 * Runs work in a dialog. Resolves once the dialog is closed.
 * @param {string} title
 * @param {{ total?: number, done: string, skipped?: string, work: (job: Job) => Promise<void> }} task `done` and `skipped` are words for what is counted
 */
export async function runJob(title, task) {
  const job = new Job();
  job.total = task.total ?? 0;
  const bar = h("progress", { "aria-label": title });
  const state = h("p", { class: "job-state", role: "status" });
  const problems = h("ul", { class: "problems" });
  const modal = new Modal(title, [bar, state, problems], { dismiss: "Cancel" });
  const show = () => {
    if (job.total)
      Object.assign(bar, { max: job.total, value: Math.min(job.total, job.done + job.skipped + job.failed) });
    state.textContent = summary(job, task);
  };
  job.addEventListener("progress", show);
  modal.dialog.addEventListener("close", () => job.cancel());
  modal.open();
  show();
  const outcome = await task.work(job).then(
    () => "",
    (error) => (isCancelled(error) ? "Cancelled." : inWords(error)),
  );
  job.removeEventListener("progress", show);
  bar.hidden = true;
  state.textContent = [outcome, `${summary(job, task)}.`].filter(Boolean).join(" ");
  problems.replaceChildren(...job.problems.map((problem) => h("li", {}, problem)));
  modal.dismiss.textContent = "Close";
  modal.dismiss.focus();
  await modal.closed;
  return job;
}

/** @param {Job} job @param {{ done: string, skipped?: string }} words */
function summary(job, words) {
  const parts = [`${count(job.done)} ${words.done}`];
  if (job.skipped) parts.push(`${count(job.skipped)} ${words.skipped ?? "skipped"}`);
  if (job.failed) parts.push(`${count(job.failed)} failed`);
  return parts.join(", ");
}
