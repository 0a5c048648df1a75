// Dialogs: one above the page, with its title, content and buttons.

import { h, newId } from "../core/dom.js";
import { isCancelled } from "../core/errors.js";
import { button, errorBox, field, input } from "./controls.js";

const EDITABLE = ".modal-body :is(input, textarea):not([readonly], :disabled), .modal-body select:not(:disabled)";

export class Modal {
  #isBusy = false;
  /** Where an action's error is shown. */
  errors = h("div", { class: "errors" });
  footer = h("footer", {});

  /** @param {string} title @param {(Child | Child[])[]} content @param {{ wide?: boolean, action?: Action, dismiss?: string }} [options] */
  constructor(title, content, options = {}) {
    const id = newId();
    const { action } = options;
    this.action = action;
    this.submit = action && h("button", { type: "submit", class: `button ${action.kind ?? "primary"}` }, action.text);
    this.dismiss = button(options.dismiss ?? (action ? "Cancel" : "Close"), () => this.dialog.close());
    this.footer.append(...[this.dismiss, this.submit].filter((node) => node !== undefined));
    const form = h(
      "form",
      { method: "dialog", noValidate: true, on: { submit: (event) => this.#submit(event) } },
      h("header", {}, h("h2", { id }, title)),
      h("div", { class: "modal-body" }, ...content, this.errors),
      this.footer,
    );
    this.dialog = h("dialog", { class: options.wide ? "wide" : "", "aria-labelledby": id }, form);
    this.dialog.addEventListener("cancel", (event) => {
      if (this.#isBusy) event.preventDefault();
    });
    this.closed = new Promise((resolve) =>
      this.dialog.addEventListener("close", () => {
        // Browsers let a second Escape close a dialog whose action still runs.
        if (this.#isBusy) return this.dialog.showModal();
        this.dialog.remove();
        resolve(undefined);
      }),
    );
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.#focusEditable();
    return this;
  }

  /** Browsers focus the first field, even if it is only there to be read. */
  #focusEditable() {
    const focused = document.activeElement;
    if (!(focused instanceof HTMLInputElement) || !focused.readOnly) return;
    const first = this.dialog.querySelector(EDITABLE);
    if (first instanceof HTMLElement) first.focus();
  }

  close() {
    this.dialog.close();
  }

  /** @param {unknown} error */
  show(error) {
    this.errors.replaceChildren(errorBox(error));
    this.errors.scrollIntoView({ block: "nearest" });
  }

  /** @param {Event} event */
  async #submit(event) {
    event.preventDefault();
    if (this.#isBusy || !this.action || !this.submit || this.submit.disabled) return;
    this.#setBusy(this.submit, true);
    this.errors.replaceChildren();
    try {
      await this.action.act();
      this.#setBusy(this.submit, false);
      this.close();
    } catch (error) {
      this.#setBusy(this.submit, false);
      if (!isCancelled(error)) this.show(error);
    }
  }

  /** While an action runs, its dialog stays: the answer may be shown once. @param {HTMLButtonElement} submit @param {boolean} isBusy */
  #setBusy(submit, isBusy) {
    this.#isBusy = submit.disabled = this.dismiss.disabled = isBusy;
  }
}

/**
 * Asks before something is destroyed: its name has to be typed.
 * @param {{ title: string, text: string, name: string, action: string, act: () => Promise<unknown>, more?: Node }} question
 */
export function confirmByName({ title, text, name, action, act, more }) {
  const typed = input({ class: "mono", autofocus: true });
  const modal = new Modal(title, [h("p", {}, text), more ?? null, field(`Type ${name} to confirm`, typed)], {
    action: { text: action, kind: "danger", act },
  });
  const check = () => {
    if (modal.submit) modal.submit.disabled = typed.value !== name;
  };
  typed.addEventListener("input", check);
  check();
  return modal.open();
}
