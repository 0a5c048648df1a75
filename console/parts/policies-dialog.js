// The stored access policies of a table.

import { h } from "../core/dom.js";
import { MAX_POLICIES, readPolicies, writePolicies } from "../core/policies.js";
import { session } from "../core/session.js";
import { button, errorBox, field, input } from "./controls.js";
import { Modal } from "./modal.js";

/** @typedef {import("../core/policies.js").Policy} Policy */

/** @param {import("../core/table-service.js").TableService} service @param {string} table */
export async function editPolicies(service, table) {
  const list = h("div", { class: "cards" });
  const add = button("Add policy", () => addCard({ id: "", start: "", expiry: "", permission: "r" }), { changes: true });
  const update = () => { add.disabled = list.children.length >= MAX_POLICIES; };
  const addCard = (/** @type {Policy} */ policy) => {
    list.append(new PolicyCard(policy, update).element);
    update();
  };
  const save = { text: "Save", act: () => writePolicies(service, table, Array.from(list.children, (card) => cards.get(card)?.policy ?? fail())) };
  const modal = new Modal(`Policies of ${table}`, [
    h("p", {}, "A signature that names a policy ends when the policy does. A table has up to five."), list, add,
  ], { wide: true, action: session.isReadOnly ? undefined : save });
  modal.open();
  try {
    for (const policy of await readPolicies(service, table)) addCard(policy);
  } catch (error) {
    modal.errors.replaceChildren(errorBox(error));
  }
  await modal.closed;
}

/** @returns {never} */
function fail() {
  throw new Error("A policy has no fields.");
}

/** @type {WeakMap<Element, PolicyCard>} */
const cards = new WeakMap();

class PolicyCard {
  /** @param {Policy} policy @param {() => void} removed */
  constructor(policy, removed) {
    const text = (/** @type {string} */ value, /** @type {string} */ placeholder) => input({ value, placeholder, class: "mono" });
    this.id = text(policy.id, "readers");
    this.start = text(policy.start, "2026-01-01T00:00:00Z");
    this.expiry = text(policy.expiry, "2027-01-01T00:00:00Z");
    this.permission = text(policy.permission, "raud");
    const remove = button("Remove", () => (this.element.remove(), removed()), { kind: "quiet", changes: true, label: `Remove policy ${policy.id}` });
    this.element = h("fieldset", { class: "card columns-4" }, h("legend", { class: "off-screen" }, `Policy ${policy.id}`),
      field("Id", this.id), field("Start", this.start), field("Expiry", this.expiry), field("Permissions", this.permission, "r read, a add, u update, d delete"), remove);
    cards.set(this.element, this);
  }

  /** @returns {Policy} */
  get policy() {
    return { id: this.id.value, start: this.start.value.trim(), expiry: this.expiry.value.trim(), permission: this.permission.value.trim() };
  }
}
