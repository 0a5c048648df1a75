// The service properties of an account: CORS rules as a form, and the whole document.

import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { currentRoute } from "../core/route.js";
import {
  indented,
  MAX_RULES,
  readProperties,
  rulesOf,
  withRules,
  writeProperties,
} from "../core/service-properties.js";
import { session } from "../core/session.js";
import { TableService } from "../core/table-service.js";
import { View } from "../core/view.js";
import { CardList } from "../parts/card-list.js";
import { button, errorBox, field, paneHead } from "../parts/controls.js";

/** @type {CardField[]} */
const FIELDS = [
  { name: "origins", title: "Origins", first: "*", hint: "Comma-separated, or *" },
  { name: "methods", title: "Methods", first: "GET" },
  { name: "headers", title: "Allowed headers" },
  { name: "exposed", title: "Exposed headers" },
  { name: "maxAge", title: "Max age in seconds", first: "3600" },
];

class ServicePane extends View {
  service = new TableService(currentRoute().account || session.account);
  #message = h("div", { class: "message" });
  #state = h("p", { class: "quiet" });
  #rules = Object.assign(new CardList(), { fields: FIELDS, max: MAX_RULES, noun: "rule" });
  #document = h("textarea", { class: "mono", rows: 18, spellcheck: false, readOnly: session.isReadOnly });

  #saveRules = button(
    "Save rules",
    () => this.#save(() => withRules(this.#document.value, /** @type {any} */ (this.#rules.values))),
    { kind: "primary", changes: true },
  );
  #saveDocument = button("Save document", () => this.#save(() => this.#document.value), { changes: true });
  /** What the server has. */
  #stored = { rules: "[]", document: "" };

  build() {
    return [
      paneHead(
        "Service properties",
        button("Reload", () => this.load()),
      ),
      this.#message,
      h(
        "section",
        {},
        h("h2", {}, "CORS rules"),
        this.#state,
        this.#rules,
        h("div", { class: "actions" }, this.#saveRules),
      ),
      h(
        "section",
        {},
        h("h2", {}, "The whole document"),
        field("Service properties (XML)", this.#document),
        h("div", { class: "actions" }, this.#saveDocument),
      ),
    ];
  }

  start() {
    this.#rules.addEventListener("change", () => this.#showChanges());
    this.#document.addEventListener("input", () => this.#showChanges());
    this.#showChanges();
    this.load();
  }

  async load() {
    try {
      const text = await readProperties(this.service);
      const rules = rulesOf(text);
      this.#document.value = indented(text);
      this.#rules.values = rules;
      this.#state.textContent = rules.length
        ? "Pages of these origins may send requests to the tables of this account."
        : "No rules: pages of other origins cannot use this account. Add a rule to allow an origin.";
      this.#stored = { rules: this.#rulesText, document: this.#document.value };
      this.#showChanges();
      this.#message.replaceChildren();
    } catch (error) {
      if (isShownHere(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  get #rulesText() {
    return JSON.stringify(this.#rules.values);
  }

  /** Only what differs from the server can be saved. */
  #showChanges() {
    this.#saveRules.disabled = this.#rulesText === this.#stored.rules;
    this.#saveDocument.disabled = this.#document.value === this.#stored.document;
  }

  /** @param {() => string} document */
  async #save(document) {
    try {
      await writeProperties(this.service, document());
      await this.load();
      this.#message.replaceChildren(h("p", { class: "done", role: "status" }, "Saved."));
    } catch (error) {
      this.#message.replaceChildren(errorBox(error));
    }
  }
}

customElements.define("service-pane", ServicePane);
