// Test mode: the faults that tests order, with what they have met.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { View } from "../core/view.js";
import { button, count, empty, errorBox } from "./controls.js";
import { addFault } from "./fault-dialog.js";

const PATH = "test/faults";

/** Seconds between two looks at the counts. */
const PAUSE = 2;

export class FaultRules extends View {
  #message = h("div", { class: "message" });
  #list = h("div", { class: "cards" });
  /** What the list shows, so that it is built anew only when that changes. */
  #shown = "";

  build() {
    const add = () => addFault((rule) => this.#change((rules) => [...rules, rule]));
    return [
      h(
        "section",
        {},
        h("header", { class: "pane-head" }, h("h2", {}, "Faults"), button("Add fault", add, { changes: true })),
        h("p", { class: "quiet" }, "Faults apply to requests of clients that match a rule, and never to those of this console."),
        this.#message,
        this.#list,
      ),
    ];
  }

  start() {
    this.#shown = "";
    this.repeat(PAUSE, () => this.load());
  }

  async load() {
    try {
      this.#show((await connection.json("GET", PATH, { signal: this.signal })).rules);
      this.#message.replaceChildren();
    } catch (error) {
      if (isShownHere(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  /** @param {CountedFaultRule[]} rules */
  #show(rules) {
    const text = JSON.stringify(rules);
    if (text === this.#shown) return;
    this.#shown = text;
    this.#list.replaceChildren(...rules.map((rule) => this.#card(rule)));
    if (!rules.length) this.#list.append(empty("No faults", "Every request is answered as usual."));
  }

  /** @param {CountedFaultRule} rule */
  #card(rule) {
    const name = `${effectOf(rule)}: ${subjectOf(rule)}`;
    const counts = [`applied ${count(rule.hits)} of ${count(rule.times)} times`, `${count(rule.matched)} matched`];
    if (rule.after) counts.push(`after ${count(rule.after)}`);
    return h(
      "article",
      { class: "card row" },
      h("div", { class: "grow" }, h("h3", { class: "mono" }, name), h("p", { class: "quiet" }, counts.join(", "))),
      button("Remove", () => this.#remove(rule), { kind: "danger", changes: true, label: `Remove ${name}` }),
    );
  }

  /** @param {CountedFaultRule} rule */
  async #remove(rule) {
    const same = JSON.stringify(uncounted(rule));
    try {
      await this.#change((rules) => {
        const removed = rules.findIndex((other) => JSON.stringify(other) === same);
        return rules.filter((_, at) => at !== removed);
      });
    } catch (error) {
      this.#message.replaceChildren(errorBox(error));
    }
  }

  /** Sets other rules than there are. @param {(rules: FaultRule[]) => FaultRule[]} change */
  async #change(change) {
    const { rules } = await connection.json("GET", PATH);
    this.#show((await connection.exchange("PUT", PATH, change(rules.map(uncounted)))).rules);
    this.#message.replaceChildren();
  }
}

/** @param {CountedFaultRule} rule @returns {FaultRule} */
const uncounted = ({ matched, hits, ...rule }) => rule;

/** @param {FaultRule} rule */
function effectOf({ error, delay, disconnect, page }) {
  if (delay) return `${delay} ms`;
  if (page) return `pages of ${page}`;
  return error ?? `disconnected ${disconnect}`;
}

/** @param {FaultRule} rule */
function subjectOf({ operation, table, page }) {
  return [operation ?? (page ? "any query" : "any request"), table].filter(Boolean).join(" ");
}

customElements.define("fault-rules", FaultRules);
