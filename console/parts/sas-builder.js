// Builds a SAS token for a table or for the account.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { button, copyable, errorBox, field, input, select } from "./controls.js";

/** @type {[string, string][]} */
const PERMISSIONS = [
  ["r", "read"],
  ["a", "add"],
  ["u", "update"],
  ["d", "delete"],
  ["l", "list (account)"],
  ["w", "write (account)"],
  ["c", "create (account)"],
];
const OF_TABLES = "raud";

/** Event: `built` (detail: the address). */
export class SasBuilder extends View {
  account = "";
  #permissions = new Set(["r"]);
  #kind = select(
    [
      ["table", "One table"],
      ["account", "The account"],
    ],
    "table",
    { on: { change: () => this.#showKind() } },
  );
  #table = input({ class: "mono", placeholder: "People" });
  #expiry = input({ class: "mono", value: "12h" });
  #start = input({ class: "mono", placeholder: "now" });
  #policy = input({ class: "mono", placeholder: "none" });
  #ip = input({ class: "mono", placeholder: "any" });
  #protocol = select(
    [
      ["", "http and https"],
      ["https", "https only"],
    ],
    "",
  );
  #key = select(
    [
      ["1", "Key 1"],
      ["2", "Key 2"],
    ],
    "1",
  );
  #keys = ["startPartitionKey", "startRowKey", "endPartitionKey", "endRowKey"].map((name) => ({
    name,
    box: input({ class: "mono", placeholder: "any" }),
  }));
  #choices = h("div", { class: "choices" });
  #ofTable = [
    field("Table", this.#table),
    field("Stored policy", this.#policy, "Its permissions and times apply instead of those here."),
    h(
      "details",
      {},
      h("summary", {}, "Key range"),
      h(
        "div",
        { class: "columns-2" },
        this.#keys.map(({ name, box }) => field(words(name), box)),
      ),
    ),
  ];
  #result = h("div", { class: "stack" });
  /** Counts changes of the form: a token is shown only for what the form says. */
  #version = 0;

  build() {
    const on = {
      submit: (/** @type {Event} */ event) => (event.preventDefault(), this.#build()),
      input: () => this.#forget(),
      change: () => this.#forget(),
    };
    return [
      h(
        "form",
        { class: "stack", on },
        field("For", this.#kind),
        ...this.#ofTable,
        h("fieldset", {}, h("legend", {}, "Permissions"), this.#choices),
        h(
          "div",
          { class: "columns-2" },
          field("Expires", this.#expiry, "A time, or a duration from now: 30m, 12h, 7d."),
          field("Valid from", this.#start),
          field("IP addresses", this.#ip, "10.0.0.1 or 10.0.0.1-10.0.0.9"),
          field("Protocol", this.#protocol),
          field("Signed by", this.#key),
        ),
        h(
          "div",
          { class: "actions" },
          button("Build", () => {}, { kind: "primary", type: "submit", changes: true }),
          session.isReadOnly && h("small", {}, "A read-only console builds no tokens."),
        ),
      ),
      this.#result,
    ];
  }

  #forget() {
    this.#version += 1;
    this.#result.replaceChildren();
  }

  start() {
    this.#showKind();
  }

  get #isOfTable() {
    return this.#kind.value === "table";
  }

  #showKind() {
    for (const part of this.#ofTable) part.hidden = !this.#isOfTable;
    const possible = PERMISSIONS.filter(([letter]) => !this.#isOfTable || OF_TABLES.includes(letter));
    this.#choices.replaceChildren(
      ...possible.map(([letter, name]) => {
        const box = h("input", {
          type: "checkbox",
          checked: this.#permissions.has(letter),
          on: { change: () => (box.checked ? this.#permissions.add(letter) : this.#permissions.delete(letter)) },
        });
        return h("label", { class: "check" }, box, name);
      }),
    );
  }

  async #build() {
    this.#forget();
    const version = this.#version;
    try {
      const built = await connection.exchange("POST", "sas", this.#wanted());
      if (version !== this.#version) return;
      this.#result.replaceChildren(copyable("Token", built.token), copyable("Address", built.url));
      this.dispatchEvent(new CustomEvent("built", { detail: built.url }));
    } catch (error) {
      if (version === this.#version) this.#result.replaceChildren(errorBox(error));
    }
  }

  /** Without what is empty. */
  #wanted() {
    const permissions = PERMISSIONS.map(([letter]) => letter)
      .filter((letter) => this.#permissions.has(letter) && (!this.#isOfTable || OF_TABLES.includes(letter)))
      .join("");
    const ofTable = {
      policy: this.#policy.value.trim(),
      ...Object.fromEntries(this.#keys.map(({ name, box }) => [name, box.value])),
    };
    const fields = {
      account: this.account,
      permissions,
      expiry: this.#expiry.value.trim(),
      start: this.#start.value.trim(),
      ip: this.#ip.value.trim(),
      protocol: this.#protocol.value,
      ...(this.#isOfTable ? ofTable : {}),
    };
    return {
      ...Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== "")),
      // Without a table, it would be for the whole account.
      ...(this.#isOfTable ? { table: this.#table.value.trim() } : {}),
      key: Number(this.#key.value),
    };
  }
}

/** @param {string} name as in `startRowKey` */
const words = (name) =>
  name.startsWith("start") ? `From ${name.slice("start".length)}` : `To ${name.slice("end".length)}`;

customElements.define("sas-builder", SasBuilder);
