// A new fault rule.

import { h } from "../core/dom.js";
import { session } from "../core/session.js";
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
  const accounts = session.accounts.map(({ name }) => /** @type {[string, string]} */ ([name, name]));
  const account = select([["", "Any"], ...accounts], "");
  const operation = suggesting("fault-operations", OPERATIONS);
  const [table, partition, row] = [1, 2, 3].map(() => input({ class: "mono" }));
  const [skip, times, delay] = [number("0"), number("1"), number("1000")];
  const error = suggesting("fault-errors", ERRORS, "ServerBusy");
  const effect = select(
    [
      ["error", "An error"],
      ["delay", "A delay"],
      ["before", "No answer, nothing is done"],
      ["after", "No answer, but it is done"],
    ],
    "error",
  );
  const parts = { error: field("Error", error.box), delay: field("Milliseconds", delay) };
  const choose = () => {
    for (const [name, part] of Object.entries(parts)) part.hidden = effect.value !== name;
  };
  effect.addEventListener("change", choose);
  choose();
  const then = () => {
    if (effect.value === "error") return { error: error.box.value.trim() };
    return effect.value === "delay" ? { delay: Number(delay.value) } : { drop: effect.value };
  };
  const rule = () => ({
    account: account.value || null,
    operation: operation.box.value.trim() || null,
    table: table.value.trim() || null,
    partition: partition.value || null,
    row: row.value || null,
    skip: Number(skip.value),
    times: Number(times.value),
    then: then(),
  });
  const modal = new Modal(
    "Add fault",
    [
      h("p", {}, "What is left empty is not selected by. The counts of all rules begin again."),
      h("div", { class: "columns-2" }, field("Account", account), field("Operation", operation.box), operation.list),
      h("div", { class: "columns-2" }, field("Table", table), field("PartitionKey", partition), field("RowKey", row)),
      h("div", { class: "columns-2" }, field("Fault", effect), parts.error, parts.delay, error.list),
      h(
        "div",
        { class: "columns-2" },
        field("Skip", skip, "Matches before the first fault."),
        field("Times", times, "Matches that meet it."),
      ),
    ],
    { action: { text: "Add", act: () => add(rule()) } },
  );
  await modal.open().closed;
}
