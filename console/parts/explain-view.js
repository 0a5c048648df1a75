// How the server will answer a filter, and, on demand, what it cost.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { InputError, isShownHere, RequestError } from "../core/errors.js";
import { View } from "../core/view.js";
import { visible } from "../core/visible.js";
import { button, count, errorBox } from "./controls.js";

/** How each access is judged. @type {Record<string, [string, string]>} */
const ACCESS = {
  nothing: ["Nothing", "good"],
  point: ["Point read", "good"],
  index: ["Index", "good"],
  order: ["Index order", "good"],
  refused: ["Refused", "warn"],
  partition: ["One partition", "good"],
  range: ["Key range", ""],
  scan: ["Whole table", "warn"],
};
const PAUSE_MS = 250;

export class ExplainView extends View {
  account = "";
  table = "";
  /** @type {{ filter?: string, orderby?: string }} */
  #query = {};
  #timer = 0;
  /** The filter whose error the pane shows. @type {string | null} */
  #toldElsewhere = null;
  #answer = h("div", { class: "explanation", role: "status" });

  build() {
    return [
      this.#answer,
      h(
        "div",
        { class: "actions" },
        button("Measure", () => this.#ask(true)),
        h("small", {}, "Runs the first page of the query and shows its cost."),
      ),
    ];
  }

  /** Explains another query, once the typing pauses. @param {string} filter @param {string} orderby */
  update(filter, orderby) {
    this.#query = { filter: filter.trim() || undefined, orderby: orderby || undefined };
    if (this.#toldElsewhere !== filter.trim()) this.#toldElsewhere = null;
    clearTimeout(this.#timer);
    if (!this.hidden) this.#timer = setTimeout(() => this.#ask(false), PAUSE_MS);
  }

  /** Leaves the error of a filter to the pane, which shows it already. @param {string} filter */
  isToldElsewhere(filter) {
    this.#toldElsewhere = filter;
    if (filter === (this.#query.filter ?? "") && this.#answer.querySelector(".wrong, .error")) this.#answer.replaceChildren();
  }

  /** Shows the explanation of the filter, which is not asked for while the view is hidden. */
  open() {
    this.#ask(false);
  }

  /** @param {boolean} measure */
  async #ask(measure) {
    const query = this.#query;
    try {
      const found = await connection.exchange(
        "POST",
        "explain",
        { account: this.account, table: this.table, ...query, measure },
        { signal: this.signal },
      );
      if (query === this.#query) this.#answer.replaceChildren(...described(found));
    } catch (error) {
      if (!isShownHere(error) || query !== this.#query) return;
      const isTold = this.#toldElsewhere !== null && this.#toldElsewhere === (query.filter ?? "");
      this.#answer.replaceChildren(...(isTold ? [] : [h("div", {}, this.#complaint(error))]));
    }
  }

  /** A filter that is not finished is no error yet. @param {unknown} error */
  #complaint(error) {
    const isUnfinished = error instanceof RequestError && error.status === 400;
    return isUnfinished || error instanceof InputError ? h("p", { class: "wrong" }, error.message) : errorBox(error);
  }
}

/** @param {Explanation} explanation @returns {HTMLElement[]} */
function described({ access, index, indexPassedOver, summary, spans, spanCount, residual, advice, cost }) {
  const [title, kind] = ACCESS[access] ?? [access, ""];
  const rows = spans.slice(0, 5).map((span) => h("li", { class: "mono" }, wordsOf(span)));
  if (spanCount > rows.length) rows.push(h("li", {}, `and ${count(spanCount - rows.length)} more`));
  return [
    h("p", {}, h("span", { class: `badge ${kind}` }, title), " ", summary),
    ...(advice ? [h("p", { class: "notice" }, advice)] : []),
    h(
      "dl",
      { class: "facts" },
      h("div", {}, h("dt", {}, "Keys read"), h("dd", {}, h("ul", { class: "spans" }, rows))),
      h("div", {}, h("dt", {}, "Index"), h("dd", {}, indexWords(index, indexPassedOver))),
      h("div", {}, h("dt", {}, "Compared row by row"), h("dd", { class: "mono" }, residual ?? "nothing")),
      ...(cost ? costOf(cost) : []),
    ),
  ];
}

/** @param {IndexName[] | null} used @param {IndexName[] | null} passedOver */
function indexWords(used, passedOver) {
  const names = (/** @type {IndexName[]} */ indexes) =>
    indexes.map(({ property, kind }) => visible(`${property} (${kind})`)).join(", ");
  if (used) return names(used);
  return passedOver ? `none: ${names(passedOver)} would match too many entities` : "none";
}

/** @param {Span} span */
function wordsOf({ from, to, words }) {
  if (words) return visible(words);
  const key = (/** @type {Key} */ { partitionKey, rowKey }) => visible(rowKey === null ? partitionKey : `${partitionKey} / ${rowKey}`);
  return `${key(from)} … ${to ? key(to) : "the end"}`;
}

/** @param {Cost} cost */
function costOf({ rowsReturned, rowsLookedAt, rowsLookedAtIsExact, milliseconds, more }) {
  return [
    h("div", {}, h("dt", {}, "Returned"), h("dd", {}, `${count(rowsReturned)}${more ? ", and there are more" : ""}`)),
    h("div", {}, h("dt", {}, "Examined"), h("dd", {}, `${rowsLookedAtIsExact ? "" : "about "}${count(rowsLookedAt)}`)),
    h("div", {}, h("dt", {}, "Took"), h("dd", {}, `${milliseconds.toFixed(milliseconds < 10 ? 2 : 0)} ms`)),
  ];
}

customElements.define("explain-view", ExplainView);
