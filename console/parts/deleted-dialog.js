// The deleted tables of an account that can be brought back.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { button, bytes, count, field, input, moment } from "./controls.js";
import { confirmByName, Modal } from "./modal.js";

/** @param {string} account @returns {Promise<DeletedTables>} */
export const deletedTables = (account) => connection.json("GET", "deleted-tables", { query: { account } });

/** Shows them until the dialog is closed. @param {string} account @param {() => Promise<void>} changed called after each change */
export async function showDeleted(account, changed) {
  const list = h("div", { class: "cards", role: "status" });
  const more = h("p", { class: "quiet" });
  const show = async () => {
    const found = await deletedTables(account);
    list.replaceChildren(...found.tables.map((table) => cardOf(table, act)));
    more.textContent = found.more ? "There are more: this list has those that were deleted last." : "";
    if (!found.tables.length) list.append(h("p", { class: "quiet" }, "No deleted table can be brought back."));
  };
  const act = async (/** @type {() => Promise<unknown>} */ work) => {
    await work();
    await show();
    await changed();
  };
  const modal = new Modal("Deleted tables", [list, more], { wide: true });
  modal.open();
  await show().catch((error) => modal.show(error));
  await modal.closed;
}

/** @param {DeletedTable} table @param {(work: () => Promise<unknown>) => Promise<void>} act */
function cardOf(table, act) {
  const entities =
    table.entities === null
      ? ""
      : `${count(table.entities)}${table.complete ? "" : " +"} entities, ${bytes(table.bytes ?? 0)}`;
  const facts = [`deleted ${moment(table.deleted)}`, `kept until ${moment(table.keptUntil)}`, entities];
  return h(
    "article",
    { class: "card row" },
    h(
      "div",
      { class: "grow" },
      h("h3", { class: "mono" }, table.table),
      h("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
    ),
    button("Bring back", () => bringBack(table, act), { changes: true, label: `Bring back ${table.table}` }),
    button("Purge", () => purge(table, act), { kind: "danger", changes: true, label: `Purge ${table.table}` }),
  );
}

/** @param {DeletedTable} table @param {(work: () => Promise<unknown>) => Promise<void>} act */
function bringBack(table, act) {
  const name = input({ class: "mono", value: table.table, autofocus: true });
  const path = `deleted-tables/${table.id}/undelete`;
  const work = () => connection.exchange("POST", path, { as: name.value.trim() });
  new Modal(
    `Bring back ${table.table}`,
    [
      h("p", {}, "It comes back with its entities, policies and expiry. Its indexes are built again."),
      field("Name", name, "Its old name, or another one that is free."),
    ],
    { action: { text: "Bring back", act: () => act(work) } },
  ).open();
}

/** @param {DeletedTable} table @param {(work: () => Promise<unknown>) => Promise<void>} act */
function purge(table, act) {
  confirmByName({
    title: "Purge a deleted table",
    text: "It cannot be brought back any more, and its entities are removed.",
    name: table.table,
    action: "Purge",
    act: () => act(() => connection.json("DELETE", `deleted-tables/${table.id}`)),
  });
}
