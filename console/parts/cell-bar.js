// The whole value of the active cell, beside its name and type.

import { shortType } from "../core/edm.js";
import { h } from "../core/dom.js";
import { View } from "../core/view.js";
import { visible } from "../core/visible.js";
import { copyButton } from "./controls.js";

export class CellBar extends View {
  #text = "";
  #name = h("span", { class: "cell-name" });
  #value = h("span", {
    class: "cell-value mono",
    tabIndex: 0,
    role: "textbox",
    "aria-readonly": "true",
    "aria-label": "Value of the cell",
  });
  #copy = copyButton(() => this.#text, "Copy cell");

  build() {
    return [this.#name, this.#value, this.#copy];
  }

  /** @param {Entity | undefined} entity @param {Column | undefined} column */
  show(entity, column) {
    this.hidden = !entity || !column;
    if (!entity || !column) return;
    const value = entity.properties.get(column.id);
    this.#text = column.text(entity);
    this.#name.textContent = value ? `${column.title} · ${shortType(value.type)}` : column.title;
    this.#value.textContent = visible(this.#text) || (value ? "(empty)" : "");
  }
}

customElements.define("cell-bar", CellBar);
