// When the entities of a table expire.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { session } from "../core/session.js";
import { button, count, field, input } from "./controls.js";
import { Modal } from "./modal.js";

const NAMES = ["after", "at", "plus", "every"];

/** @param {string} account @param {string} table */
export async function editExpiry(account, table) {
  const path = `accounts/${encodeURIComponent(account)}/tables/${encodeURIComponent(table)}/expiry`;
  const boxes = Object.fromEntries(NAMES.map((name) => [name, input({ class: "mono", readOnly: session.isReadOnly })]));
  const state = h("p", { class: "quiet", role: "status" });
  const wanted = () =>
    Object.fromEntries(NAMES.map((name) => [name, boxes[name].value.trim()]).filter(([, value]) => value));
  const save = { text: "Save", act: () => connection.exchange("PUT", path, wanted()) };
  const end = button(
    "End expiry",
    () =>
      connection.json("DELETE", path).then(
        () => modal.close(),
        (error) => modal.show(error),
      ),
    { kind: "danger", changes: true },
  );
  const modal = new Modal(
    `Expiry of ${table}`,
    [
      h("p", {}, "Entities are deleted some time after they were written, or at a time that they have themselves."),
      field("After", boxes.after, "Since the entity was written, such as 30d."),
      field("Or at the property", boxes.at, "A DateTime property."),
      field("Plus", boxes.plus, "After that time, such as 1h."),
      field("Look every", boxes.every, "Such as 5m."),
      state,
      end,
    ],
    { action: session.isReadOnly ? undefined : save },
  );
  modal.open();
  try {
    const rules = await connection.json("GET", "expiry", { query: { account } });
    const rule = rules.find((/** @type {any} */ found) => found.table.toLowerCase() === table.toLowerCase());
    end.hidden ||= !rule;
    state.textContent = rule
      ? `${count(rule.expired)} entities have expired.`
      : "Entities of this table do not expire.";
    for (const name of NAMES) boxes[name].value = rule?.[name] ?? "";
  } catch (error) {
    modal.show(error);
  }
  await modal.closed;
}
