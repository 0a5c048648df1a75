// The stored access policies of a table.

import { h } from "../core/dom.js";
import { MAX_POLICIES, readPolicies, writePolicies } from "../core/policies.js";
import { session } from "../core/session.js";
import { CardList } from "./card-list.js";
import { Modal } from "./modal.js";

/** @type {CardField[]} */
const FIELDS = [
  { name: "id", title: "Id", placeholder: "readers" },
  { name: "start", title: "Start", placeholder: "2026-01-01T00:00:00Z" },
  { name: "expiry", title: "Expiry", placeholder: "2027-01-01T00:00:00Z" },
  { name: "permission", title: "Permissions", first: "r", hint: "r read, a add, u update, d delete" },
];

/** @param {TableService} service @param {string} table */
export async function editPolicies(service, table) {
  const list = Object.assign(new CardList(), { fields: FIELDS, max: MAX_POLICIES, noun: "policy" });
  const modal = new Modal(
    `Policies of ${table}`,
    [h("p", {}, "A SAS token that names a policy expires with it. A table can have up to five policies."), list],
    {
      wide: true,
      action: session.isReadOnly
        ? undefined
        : { text: "Save", act: () => writePolicies(service, table, /** @type {any} */ (list.values)) },
    },
  );
  // What was not read would be removed.
  list.hidden = true;
  if (modal.submit) modal.submit.disabled = true;
  modal.open();
  try {
    list.values = await readPolicies(service, table);
    list.hidden = false;
    if (modal.submit) modal.submit.disabled = false;
  } catch (error) {
    modal.show(error);
  }
  await modal.closed;
}
