// The SQL view of a table.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { button, errorBox, moment } from "./controls.js";
import { Modal } from "./modal.js";

/** @param {string} account @param {string} table */
export async function editView(account, table) {
  const path = `accounts/${encodeURIComponent(account)}/tables/${encodeURIComponent(table)}/view`;
  const state = h("div", { role: "status", class: "stack" });
  const refresh = button("", () => attempt("PUT"), { kind: "primary", changes: true });
  const drop = button("Drop view", () => attempt("DELETE"), { kind: "danger", changes: true });
  const modal = new Modal(`SQL view of ${table}`, [
    h("p", {}, "Programs that speak SQL read the table through a view with a column for each property."),
    state,
    h("div", { class: "actions" }, refresh, drop),
  ]);
  const attempt = async (/** @type {string} */ method) => {
    modal.errors.replaceChildren();
    await connection
      .json(method, path)
      .then(show)
      .catch((error) => modal.show(error));
  };
  const show = async () => {
    const views = await connection.json("GET", "views", { query: { account } });
    const view = views.find((/** @type {any} */ found) => found.table.toLowerCase() === table.toLowerCase());
    refresh.textContent = view ? "Refresh view" : "Create view";
    drop.hidden = refresh.hidden || !view;
    state.replaceChildren(
      ...(view ? described(view) : [h("p", { class: "quiet" }, "There is no view of this table.")]),
    );
  };
  modal.open();
  await show().catch((error) => state.replaceChildren(errorBox(error)));
  await modal.closed;
}

/** @param {any} view */
function described({ schema, view, columns, refreshed }) {
  const names = Array.isArray(columns)
    ? columns.map((column) => (typeof column === "string" ? column : column.name))
    : Object.keys(columns ?? {});
  return [
    h("p", {}, h("code", {}, [schema, view].filter(Boolean).join("."))),
    h("p", { class: "quiet" }, `${names.length} columns, refreshed ${moment(refreshed)}: ${names.join(", ")}`),
  ];
}
