// A property in the editor: name, type and value. What nobody touched keeps its value to the last bit.

import { complaint, shortType, TYPES } from "../core/edm.js";
import { h, newId } from "../core/dom.js";
import { InputError } from "../core/errors.js";
import { View } from "../core/view.js";
import { button, checkbox, input, select } from "./controls.js";

/** Text fields alter these: they are edited as escapes of JSON. */
const NEEDS_ESCAPES = /[\u0000-\u0008\u000b-\u001f\u007f]/;

const MAX_ROWS = 12;
/** About as many as a dialog has room for. */
const CHARACTERS_OF_A_ROW = 48;

/** Event: `remove`. */
export class PropertyRow extends View {
  name = "";
  /** @type {Value} */
  value = { type: "Edm.String", text: "" };
  isNew = true;
  #touched = false;
  #escaped = checkbox("escapes", false, () => this.#toggleEscapes());
  #name = input({ class: "mono", "aria-label": "Property name", placeholder: "Name" });
  #type = select(
    TYPES.map((type) => [type, shortType(type)]),
    "Edm.String",
    { "aria-label": "Type", on: { change: () => this.#changeType() } },
  );
  /** @type {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} */
  #control = input();
  #slot = h("div", { class: "property-value" });
  #wrong = h("small", { class: "wrong", id: newId(), role: "status" });

  build() {
    this.#name.value = this.name;
    this.#name.readOnly = !this.isNew;
    this.#type.value = this.value.type;
    this.#isEscaped = this.value.type === "Edm.String" && NEEDS_ESCAPES.test(this.value.text);
    this.#fill(this.value.text);
    const remove = button("Remove", () => this.dispatchEvent(new CustomEvent("remove", { bubbles: true })), {
      kind: "quiet",
      label: `Remove ${this.name || "this property"}`,
    });
    return [this.#name, this.#type, h("div", {}, this.#slot, this.#wrong), this.#escaped, remove];
  }

  get #checkbox() {
    return /** @type {HTMLInputElement} */ (this.#escaped.firstElementChild);
  }

  get #isEscaped() {
    return this.#checkbox.checked;
  }

  set #isEscaped(isEscaped) {
    this.#checkbox.checked = isEscaped;
  }

  /** @returns {EdmType} */
  get #chosen() {
    return /** @type {EdmType} */ (this.#type.value);
  }

  /** @param {string} text */
  #fill(text) {
    const type = this.#chosen;
    const shown = this.#isEscaped ? JSON.stringify(text).slice(1, -1) : text;
    const touch = {
      on: { input: () => this.#touch(), change: () => this.#touch() },
      "aria-label": `Value of ${this.name || "the new property"}`,
      "aria-describedby": this.#wrong.id,
    };
    if (type === "Edm.Boolean")
      this.#control = select(
        [
          ["true", "true"],
          ["false", "false"],
        ],
        shown === "true" ? "true" : "false",
        touch,
      );
    else if (type === "Edm.String")
      this.#control = h("textarea", {
        ...touch,
        value: shown,
        spellcheck: false,
        rows: rowsFor(shown),
      });
    else this.#control = input({ ...touch, value: shown, class: "mono" });
    this.#escaped.hidden = type !== "Edm.String";
    this.#slot.replaceChildren(this.#control);
  }

  #touch() {
    this.#touched = true;
    if (this.#control instanceof HTMLTextAreaElement) this.#control.rows = rowsFor(this.#control.value);
    try {
      this.read();
      this.#complain("");
    } catch (error) {
      this.#complain(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {string} wrong */
  #complain(wrong) {
    this.#wrong.textContent = wrong;
    this.#control.setAttribute("aria-invalid", String(wrong !== ""));
  }

  #changeType() {
    const text = this.#control.value;
    if (this.#chosen !== "Edm.String") this.#isEscaped = false;
    this.#fill(text);
    this.#touch();
  }

  #toggleEscapes() {
    const wasEscaped = !this.#isEscaped;
    try {
      const text = this.#touched ? this.#textOf(wasEscaped) : this.value.text;
      if (NEEDS_ESCAPES.test(text)) this.#isEscaped = true;
      this.#fill(text);
    } catch {
      this.#isEscaped = wasEscaped;
    }
  }

  /** @param {boolean} isEscaped */
  #textOf(isEscaped) {
    const { value } = this.#control;
    if (!isEscaped) return value;
    try {
      // Quotes and line ends may be written as they are.
      const quoted = value.replace(/\\[^]|"|\n/g, (found) => (found === '"' ? '\\"' : found === "\n" ? "\\n" : found));
      return String(JSON.parse(`"${quoted}"`));
    } catch {
      throw new InputError("An escape is not valid. Valid ones are \\n, \\r, \\t, \\\\ and \\u0000, for example.");
    }
  }

  /** The property as it stands. @returns {{ name: string, value: Value }} @throws {InputError} */
  read() {
    const name = this.#name.value;
    if (!name) throw new InputError("A property needs a name.");
    const isAsBefore = !this.#touched && this.#chosen === this.value.type;
    if (isAsBefore && !this.isNew) return { name, value: this.value };
    const text = this.#textOf(this.#isEscaped);
    const wrong = complaint(this.#chosen, text);
    if (wrong) throw new InputError(`${name}: ${wrong}`);
    return { name, value: { type: this.#chosen, text } };
  }

  focusName() {
    this.#name.focus();
  }

  focusValue() {
    this.#control.focus();
  }

  /** Reads the property, or says beside it what is wrong. @returns {{ name: string, value: Value } | null} */
  check() {
    try {
      return this.read();
    } catch (error) {
      this.#complain(error instanceof Error ? error.message : String(error));
      if (this.#name.value) this.focusValue();
      else this.focusName();
      return null;
    }
  }
}

/** As many rows as a text needs, within limits. @param {string} text */
const rowsFor = (text) =>
  Math.min(
    MAX_ROWS,
    text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / CHARACTERS_OF_A_ROW)), 0),
  );

customElements.define("property-row", PropertyRow);
