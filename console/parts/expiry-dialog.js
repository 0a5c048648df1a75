// When the entities of a table expire.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { InputError } from "../core/errors.js";
import { session } from "../core/session.js";
import { count, field, input } from "./controls.js";
import { Modal } from "./modal.js";

/** The ways to expire, and the fields of each. @type {[string, string, string[]][]} */
const WAYS = [
  ["never", "Never", []],
  ["after", "Some time after the last write", ["after"]],
  ["at", "At a time that each entity has", ["at", "plus"]],
];
const NAMES = ["after", "at", "plus", "every"];

/** @param {string} account @param {string} table */
export async function editExpiry(account, table) {
  const path = `accounts/${encodeURIComponent(account)}/tables/${encodeURIComponent(table)}/expiry`;
  const form = new ExpiryForm();
  const save = async () => {
    if (form.way !== "never") await connection.exchange("PUT", path, form.rule);
    else if (form.hadRule) await connection.json("DELETE", path);
  };
  const modal = new Modal(`Expiry of ${table}`, form.parts, {
    action: session.isReadOnly ? undefined : { text: "Save", act: save },
  });
  // A rule that was not read would be replaced.
  if (modal.submit) modal.submit.disabled = true;
  modal.open();
  try {
    const rules = await connection.json("GET", "expiry", { query: { account } });
    form.show(rules.find((/** @type {any} */ found) => found.table.toLowerCase() === table.toLowerCase()));
    if (modal.submit) modal.submit.disabled = false;
  } catch (error) {
    modal.show(error);
  }
  await modal.closed;
}

class ExpiryForm {
  way = "never";
  hadRule = false;
  #boxes = Object.fromEntries(NAMES.map((name) => [name, input({ class: "mono", readOnly: session.isReadOnly })]));
  #every = field("Check every", this.#boxes.every, "Such as 5m. Leave it empty for the server default.");
  #radios = WAYS.map(([way]) =>
    h("input", {
      type: "radio",
      name: "way",
      disabled: session.isReadOnly,
      on: { change: () => this.#choose(way) },
    }),
  );
  /** @type {Record<string, HTMLElement>} */
  #fields = {
    never: h("div", {}),
    after: h("div", { class: "columns-2" }, field("Time after the write", this.#boxes.after, "Such as 30d.")),
    at: h(
      "div",
      { class: "columns-2" },
      field("Property", this.#boxes.at, "The name of a DateTime property."),
      field("Plus", this.#boxes.plus, "A time to add to it, such as 1h, or nothing."),
    ),
  };
  #state = h("p", { class: "quiet", role: "status" });
  parts = [
    h(
      "fieldset",
      { class: "stack" },
      h("legend", {}, "When do entities expire?"),
      WAYS.map(([way, title], index) => [
        h("label", { class: "check" }, this.#radios[index], title),
        this.#fields[way],
      ]).flat(),
    ),
    this.#every,
    this.#state,
  ];

  constructor() {
    this.#choose("never");
  }

  /** @param {string} chosen */
  #choose(chosen) {
    this.way = chosen;
    WAYS.forEach(([way], index) => {
      this.#radios[index].checked = way === chosen;
      this.#fields[way].hidden = way !== chosen;
    });
    this.#every.hidden = chosen === "never";
  }

  /** @param {any} rule none if entities do not expire */
  show(rule) {
    this.hadRule = Boolean(rule);
    for (const name of NAMES) this.#boxes[name].value = rule?.[name] ?? "";
    this.#choose(rule ? (rule.at ? "at" : "after") : "never");
    this.#state.textContent = rule ? `${count(rule.expired)} entities have expired so far.` : "";
  }

  /** The rule of the chosen way, without what is empty. @throws {InputError} */
  get rule() {
    const [, , names] = WAYS.find(([way]) => way === this.way) ?? WAYS[0];
    const texts = [...names, "every"].map((name) => [name, this.#boxes[name].value.trim()]);
    if (!texts[0][1]) throw new InputError(this.way === "after" ? "Enter a time, such as 30d." : "Name a DateTime property.");
    return Object.fromEntries(texts.filter(([, text]) => text));
  }
}
