// The service properties of an account: CORS rules as a form, and the whole document.

import { h } from "../core/dom.js";
import { currentRoute } from "../core/route.js";
import { indented, MAX_RULES, readProperties, rulesOf, withRules, writeProperties } from "../core/service-properties.js";
import { session } from "../core/session.js";
import { TableService } from "../core/table-service.js";
import { View } from "../core/view.js";
import { button, empty, errorBox, field, input, paneHead } from "../parts/controls.js";

/** @typedef {import("../core/service-properties.js").CorsRule} CorsRule */

class ServicePane extends View {
  service = new TableService(currentRoute().account || session.account);
  #message = h("div", { class: "message" });
  #rules = h("div", { class: "cards" });
  #document = h("textarea", { class: "mono", rows: 18, spellcheck: false, readOnly: session.isReadOnly });
  #add = button("Add rule", () => this.#addRule({ origins: "*", methods: "GET", headers: "", exposed: "", maxAge: "3600" }), { changes: true });
  /** @type {RuleCard[]} */
  #cards = [];

  build() {
    return [
      paneHead("Service properties", button("Read again", () => this.load())), this.#message,
      h("section", {}, h("h2", {}, "CORS rules"), h("p", { class: "quiet" }, "Which pages of other origins may send requests to this account's tables."),
        this.#rules, h("div", { class: "actions" }, this.#add, button("Save rules", () => this.#save(() => withRules(this.#document.value, this.#cards.map((card) => card.rule))), { kind: "primary", changes: true }))),
      h("section", {}, h("h2", {}, "The whole document"), field("Service properties (XML)", this.#document),
        h("div", { class: "actions" }, button("Save document", () => this.#save(() => this.#document.value), { changes: true }))),
    ];
  }

  start() {
    this.load();
  }

  async load() {
    try {
      const text = await readProperties(this.service);
      this.#document.value = indented(text);
      this.#cards = [];
      this.#rules.replaceChildren();
      for (const rule of rulesOf(text)) this.#addRule(rule);
      if (!this.#cards.length) this.#rules.append(empty("No rules", "Pages of other origins cannot use this account. Add a rule to let one in."));
      this.#message.replaceChildren();
    } catch (error) {
      this.#message.replaceChildren(errorBox(error));
    }
  }

  /** @param {CorsRule} rule */
  #addRule(rule) {
    if (!this.#cards.length) this.#rules.replaceChildren();
    const card = new RuleCard(rule, () => {
      this.#cards = this.#cards.filter((other) => other !== card);
      this.#add.disabled = false;
    });
    this.#cards.push(card);
    this.#rules.append(card.element);
    this.#add.disabled = this.#cards.length >= MAX_RULES;
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

class RuleCard {
  /** @param {CorsRule} rule @param {() => void} removed */
  constructor(rule, removed) {
    const text = (/** @type {string} */ value) => input({ value, class: "mono" });
    this.fields = { origins: text(rule.origins), methods: text(rule.methods), headers: text(rule.headers), exposed: text(rule.exposed), maxAge: text(rule.maxAge) };
    const { origins, methods, headers, exposed, maxAge } = this.fields;
    const remove = button("Remove", () => (this.element.remove(), removed()), { kind: "quiet", changes: true, label: `Remove the rule for ${rule.origins}` });
    this.element = h("fieldset", { class: "card columns-4" }, h("legend", { class: "off-screen" }, `Rule for ${rule.origins}`),
      field("Origins", origins, "https://a.example,https://b.example or *"), field("Methods", methods, "GET,PUT,…"), field("Allowed headers", headers),
      field("Exposed headers", exposed), field("Seconds to keep", maxAge), remove);
  }

  /** @returns {CorsRule} */
  get rule() {
    const { origins, methods, headers, exposed, maxAge } = this.fields;
    return { origins: origins.value, methods: methods.value, headers: headers.value, exposed: exposed.value, maxAge: maxAge.value };
  }
}

customElements.define("service-pane", ServicePane);
