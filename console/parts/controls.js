// Buttons, fields and small texts that all panes share.

import { h, newId } from "../core/dom.js";
import { inWords, RequestError } from "../core/errors.js";
import { session } from "../core/session.js";

/** @param {string} text @param {(event: Event) => void} act @param {ButtonOptions} [options] */
export function button(text, act, options = {}) {
  return h(
    "button",
    {
      type: options.type ?? "button",
      class: `button ${options.kind ?? ""} ${options.class ?? ""}`.trim(),
      hidden: Boolean(options.changes && session.isReadOnly),
      "aria-label": options.label,
      on: { click: act },
    },
    text,
  );
}

/** A control with its label above it. @param {string} label @param {HTMLElement} control @param {string} [hint] */
export function field(label, control, hint) {
  const id = control.id || newId();
  control.id = id;
  const note = hint ? h("small", { id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

/** A checkbox with its label beside it. @param {string} label @param {boolean} isChecked @param {(isChecked: boolean) => void} [changed] */
export function checkbox(label, isChecked, changed) {
  const input = h("input", { type: "checkbox", checked: isChecked, on: { change: () => changed?.(input.checked) } });
  return h("label", { class: "check" }, input, label);
}

/** @param {[string, string][]} options values and texts @param {string} chosen @param {Props} [props] */
export function select(options, chosen, props = {}) {
  const element = h(
    "select",
    props,
    options.map(([value, text]) => h("option", { value }, text)),
  );
  element.value = chosen;
  return element;
}

/** A text field. @param {Props} [props] */
export const input = (props = {}) => h("input", { type: "text", autocomplete: "off", spellcheck: false, ...props });

/** An error, with the id of the request, by which the log tells more. @param {unknown} error */
export function errorBox(error) {
  const id = error instanceof RequestError ? error.requestId : "";
  return h(
    "div",
    { class: "error", role: "alert" },
    h("p", {}, inWords(error)),
    id && h("p", { class: "request-id" }, "Request ", h("code", {}, id)),
  );
}

/** What is shown where there is nothing yet, and what to do next. @param {string} title @param {string} text @param {...(Node | false)} actions */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("p", { class: "title" }, title), h("p", {}, text), h("div", { class: "actions" }, actions));
}

/** The head of a pane. @param {string | Node} title @param {...(Node | false | null)} actions */
export function paneHead(title, ...actions) {
  return h("header", { class: "pane-head" }, h("h1", {}, title), h("div", { class: "actions" }, actions));
}

/** A text that can be copied. @param {string} label @param {string} text */
export function copyable(label, text) {
  const box = input({ value: text, readOnly: true, class: "mono" });
  return h(
    "div",
    { class: "copyable" },
    field(label, box),
    copyButton(() => text, `Copy ${label}`),
  );
}

/** @param {() => string} text @param {string} [label] */
export function copyButton(text, label) {
  return button(
    "Copy",
    async (event) => {
      const target = /** @type {HTMLButtonElement} */ (event.currentTarget);
      const isCopied = await copy(text());
      target.textContent = isCopied ? "Copied" : "Select and copy it";
      setTimeout(() => {
        target.textContent = "Copy";
      }, 1500);
    },
    { label, class: "copy" },
  );
}

/** @param {string} text @returns {Promise<boolean>} */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** Over HTTP from another machine, pages have no clipboard but by a selection. @param {string} text */
function copyBySelection(text) {
  const area = h("textarea", { value: text, class: "off-screen" });
  const focused = document.activeElement;
  const parent = focused?.closest("dialog") ?? document.body;
  parent.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isCopied;
}

/** @param {number} value */
export const count = (value) => value.toLocaleString("en");

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** A moment as people write it, in local time. @param {string} iso */
export function moment(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
