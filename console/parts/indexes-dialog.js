// The property indexes of a table.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { pause } from "../core/view.js";
import { session } from "../core/session.js";
import { button, bytes, count, field, input, select } from "./controls.js";
import { Modal } from "./modal.js";

const KINDS = ["text", "number", "time", "guid", "boolean"];
const SECONDS = 2;

/** @param {string} account @param {string} table */
export async function editIndexes(account, table) {
  const list = h("div", { class: "cards", role: "status" });
  const advice = h("p", { class: "quiet" });
  // What the list shows, so that it is built anew only when that changes: a click on what is replaced is lost.
  let shown = "";
  const property = input({ class: "mono" });
  const kind = select(
    [["", "automatic"], ...KINDS.map((name) => /** @type {[string, string]} */ ([name, name]))],
    "",
  );
  const attempt = async (/** @type {() => Promise<unknown>} */ work) => {
    modal.errors.replaceChildren();
    await work()
      .then(show)
      .catch((error) => modal.show(error));
  };
  const create = () =>
    connection.exchange("POST", "indexes", {
      account,
      table,
      property: property.value.trim(),
      kind: kind.value || undefined,
    });
  const drop = (/** @type {number} */ id) => attempt(() => connection.json("DELETE", `indexes/${id}`));
  const show = async () => {
    /** @type {PropertyIndex[]} */
    const found = await connection.json("GET", "indexes", { query: { account, table } });
    const text = JSON.stringify(found);
    if (text === shown) return;
    shown = text;
    list.replaceChildren(...found.map((index) => cardOf(index, drop)));
    if (!found.length)
      list.append(h("p", { class: "quiet" }, "No indexes: filters on properties read every row."));
  };
  const modal = new Modal(
    `Indexes of ${table}`,
    [
      list,
      !session.isReadOnly && h("div", { class: "columns-2" }, field("Property", property), field("Kind", kind)),
      button("Create index", () => attempt(create), { kind: "primary", changes: true }),
      advice,
    ],
    { wide: true },
  );
  modal.open();
  const stop = new AbortController();
  modal.closed.then(() => stop.abort());
  advice.textContent = await suggestions(account, table);
  // An index that is being built changes by itself.
  while (!stop.signal.aborted) {
    await show().catch((error) => modal.show(error));
    await pause(SECONDS, stop.signal);
  }
}

/** @param {PropertyIndex} index @param {(id: number) => void} drop */
function cardOf({ id, property, kind, state, bytes: size, uses, progress }, drop) {
  const facts = [
    state === "building" ? `building${progress ? `, ${progress}` : ""}` : state,
    size === null ? "" : bytes(size),
    uses === null ? "" : `used ${count(uses)} times`,
  ];
  return h(
    "article",
    { class: "card row" },
    h(
      "div",
      { class: "grow" },
      h("h3", { class: "mono" }, property),
      h("p", { class: "quiet" }, [kind, ...facts].filter(Boolean).join(" · ")),
    ),
    button("Drop", () => drop(id), { kind: "danger", changes: true, label: `Drop the index on ${property}` }),
  );
}

/** What filters without an index have cost. @param {string} account @param {string} table */
async function suggestions(account, table) {
  const costs = await connection.json("GET", "index-suggestions").catch(() => []);
  const ours = costs.filter(
    (/** @type {any} */ cost) => cost.account === account && cost.table.toLowerCase() === table.toLowerCase(),
  );
  return ours
    .slice(0, 3)
    .map(
      (/** @type {any} */ cost) =>
        `Filters on ${cost.property} examined ${count(cost.examined)} rows and returned ${count(cost.returned)}.`,
    )
    .join(" ");
}
