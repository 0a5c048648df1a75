// A new fault rule.

import { h } from "../core/dom.js";
import { field, input, select } from "./controls.js";
import { Modal } from "./modal.js";

const OPERATIONS =
  "InsertEntity UpdateEntity MergeEntity InsertOrReplaceEntity InsertOrMergeEntity DeleteEntity GetEntity QueryEntities EntityGroupTransaction QueryBatch CreateTable DeleteTable GetTable QueryTables".split(
    " ",
  );
const ERRORS =
  "ServerBusy OperationTimedOut InternalError UpdateConditionNotSatisfied EntityAlreadyExists ResourceNotFound TableNotFound TableBeingDeleted AuthenticationFailed".split(
    " ",
  );

/** A text field with suggestions; other texts are the server's to judge. @param {string} id @param {string[]} texts @param {string} [value] */
function suggesting(id, texts, value = "") {
  const list = h(
    "datalist",
    { id },
    texts.map((text) => h("option", { value: text })),
  );
  return { list, box: input({ class: "mono", list: id, value }) };
}

const number = (/** @type {string} */ value) => input({ type: "number", class: "mono", value });

/** Asks for a rule. @param {(rule: FaultRule) => Promise<unknown>} add */
export async function addFault(add) {
  const operation = suggesting("fault-operations", OPERATIONS);
  const table = input({ class: "mono" });
  const [after, times, delay, page] = ["0", "1", "1000", "1"].map(number);
  const error = suggesting("fault-errors", ERRORS, "ServerBusy");
  const effect = select(
    [
      ["error", "An error"],
      ["delay", "A delay"],
      ["before", "No answer, and nothing is stored"],
      ["after", "No answer, but the operation is done"],
      ["page", "Short pages"],
    ],
    "error",
  );
  const parts = { error: field("Error", error.box), delay: field("Milliseconds", delay), page: field("Rows", page) };
  const choose = () => {
    for (const [name, part] of Object.entries(parts)) part.hidden = effect.value !== name;
  };
  effect.addEventListener("change", choose);
  choose();
  const faults = {
    error: () => ({ error: error.box.value.trim() }),
    delay: () => ({ delay: Number(delay.value) }),
    before: () => ({ disconnect: "before" }),
    after: () => ({ disconnect: "after" }),
    page: () => ({ page: Number(page.value) }),
  };
  const rule = () => ({
    operation: operation.box.value.trim() || null,
    table: table.value.trim() || null,
    after: Number(after.value),
    times: Number(times.value),
    ...faults[/** @type {keyof typeof faults} */ (effect.value)](),
  });
  const modal = new Modal(
    "Add fault",
    [
      h("p", {}, "An empty field matches everything. All rules start counting again."),
      h("div", { class: "columns-2" }, field("Operation", operation.box), operation.list, field("Table", table)),
      h("div", { class: "columns-2" }, field("Fault", effect), parts.error, parts.delay, parts.page, error.list),
      h(
        "div",
        { class: "columns-2" },
        field("After", after, "Matches before the first fault."),
        field("Times", times, "Matches that the fault applies to."),
      ),
    ],
    { action: { text: "Add", act: () => add(rule()) } },
  );
  await modal.open().closed;
}
