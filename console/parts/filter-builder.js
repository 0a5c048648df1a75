// Builds a filter from clauses.

import { complaint, shortType, TYPES, typeOf } from "../core/edm.js";
import { h } from "../core/dom.js";
import { InputError } from "../core/errors.js";
import { filterOf, OPERATORS, TEXT_OPERATORS, UNARY_OPERATORS } from "../core/filter.js";
import { View } from "../core/view.js";
import { button, input, select } from "./controls.js";

/** Event: `filter` (detail: the text of the filter). */
export class FilterBuilder extends View {
  /** The types of the properties that are known. @type {Map<string, Set<EdmType>>} */
  types = new Map();
  #clauses = h("div", { class: "clauses" });
  #wrong = h("p", { class: "wrong", role: "status" });
  #names = h("datalist", { id: "known-properties" });

  build() {
    const actions = h(
      "div",
      { class: "actions" },
      button("Add clause", () => this.#add()),
      button("Apply filter", () => this.#use(), { kind: "primary" }),
    );
    return [this.#names, this.#clauses, this.#wrong, actions];
  }

  start() {
    this.#names.replaceChildren(
      ...["PartitionKey", "RowKey", "Timestamp", ...this.types.keys()]
        .slice(0, 500)
        .map((value) => h("option", { value })),
    );
    if (!this.#clauses.children.length) this.#add();
  }

  #add() {
    const clause = new FilterClause();
    clause.typeOfName = (name) => this.#typeOfName(name);
    this.#clauses.append(clause);
    clause.focusName();
  }

  /** @param {string} name @returns {EdmType | undefined} */
  #typeOfName(name) {
    if (name === "PartitionKey" || name === "RowKey") return "Edm.String";
    if (name === "Timestamp") return "Edm.DateTime";
    return [...(this.types.get(name) ?? [])][0];
  }

  #use() {
    try {
      const clauses = Array.from(this.#clauses.children, (clause) => /** @type {FilterClause} */ (clause).read());
      this.#wrong.textContent = "";
      this.dispatchEvent(new CustomEvent("filter", { detail: filterOf(clauses) }));
    } catch (error) {
      this.#wrong.textContent = error instanceof Error ? error.message : String(error);
    }
  }
}

class FilterClause extends View {
  /** @type {(name: string) => EdmType | undefined} */
  typeOfName = () => undefined;
  #join = select(
    [
      ["and", "and"],
      ["or", "or"],
    ],
    "and",
    { "aria-label": "And or or", class: "join" },
  );
  #property = input({
    list: "known-properties",
    class: "mono",
    placeholder: "Property",
    "aria-label": "Property",
    on: { change: () => this.#suggestType() },
  });
  #operator = select(OPERATORS, "eq", { "aria-label": "Comparison", on: { change: () => this.#suggestType() } });
  #type = select(
    TYPES.map((type) => [type, shortType(type)]),
    "Edm.String",
    { "aria-label": "Type of the value" },
  );
  #value = input({ class: "mono", placeholder: "Value", "aria-label": "Value" });

  build() {
    const remove = button("Remove", () => this.remove(), { kind: "quiet", label: "Remove this clause" });
    return [this.#join, this.#property, this.#operator, this.#type, this.#value, remove];
  }

  focusName() {
    this.#property.focus();
  }

  #suggestType() {
    const type = this.#isText() ? "Edm.String" : this.typeOfName(this.#property.value);
    if (type) this.#type.value = type;
    const isUnary = UNARY_OPERATORS.includes(this.#chosen());
    this.#value.disabled = isUnary;
    this.#type.disabled = isUnary;
  }

  /** @returns {Operator} */
  #chosen() {
    return /** @type {Operator} */ (this.#operator.value);
  }

  #isText() {
    return TEXT_OPERATORS.includes(this.#chosen());
  }

  /** @returns {Clause} */
  read() {
    const property = this.#property.value.trim();
    const type = typeOf(this.#type.value) ?? "Edm.String";
    const text = this.#value.value;
    const operator = this.#chosen();
    const wrong = UNARY_OPERATORS.includes(operator) ? undefined : complaint(type, text);
    if (!property) throw new InputError("Each clause needs a property.");
    if (wrong) throw new InputError(`${property}: ${wrong}`);
    if (this.#isText() && type !== "Edm.String") throw new InputError(`${property}: only strings have this comparison.`);
    return { join: this.#join.value === "or" ? "or" : "and", property, operator, value: { type, text } };
  }
}

customElements.define("filter-clause", FilterClause);
customElements.define("filter-builder", FilterBuilder);
