// A list of cards with the same text fields, which can be added and removed.

import { h } from "../core/dom.js";
import { View } from "../core/view.js";
import { button, field, input } from "./controls.js";

/** Event: `change` when a text changed or a card was added or removed. */
export class CardList extends View {
  /** @type {CardField[]} */
  fields = [];
  max = 5;
  /** What one card is, in lower case. */
  noun = "";
  #cards = h("div", { class: "cards" });
  #add = button("", () => (this.add({}), this.#changed()), { changes: true });
  /** @type {Map<Element, Record<string, HTMLInputElement>>} */
  #boxes = new Map();

  build() {
    this.#add.textContent = `Add ${this.noun}`;
    return [this.#cards, this.#add];
  }

  /** The texts of each card. @returns {Record<string, string>[]} */
  get values() {
    return Array.from(this.#cards.children, (card) =>
      Object.fromEntries(Object.entries(this.#boxes.get(card) ?? {}).map(([name, box]) => [name, box.value.trim()])),
    );
  }

  set values(values) {
    this.#cards.replaceChildren();
    for (const value of values) this.add(value);
    this.#count();
  }

  /** @param {Record<string, string>} value */
  add(value) {
    const boxes = Object.fromEntries(
      this.fields.map(({ name, placeholder, first }) => [
        name,
        input({ class: "mono", placeholder, value: value[name] ?? first ?? "", on: { input: () => this.#changed() } }),
      ]),
    );
    const name = Object.values(value)[0] ?? "";
    const remove = button("Remove", () => (card.remove(), this.#count(), this.#changed()), {
      kind: "quiet",
      changes: true,
      label: `Remove ${this.noun} ${name}`.trim(),
    });
    const card = h(
      "fieldset",
      { class: "card columns-4" },
      h("legend", { class: "off-screen" }, `${this.noun} ${name}`),
      this.fields.map(({ name, title, hint }) => field(title, boxes[name], hint)),
      remove,
    );
    this.#boxes.set(card, boxes);
    this.#cards.append(card);
    this.#count();
  }

  #changed() {
    this.dispatchEvent(new CustomEvent("change"));
  }

  #count() {
    this.#add.disabled = this.#cards.children.length >= this.max;
  }
}

customElements.define("card-list", CardList);
