// Chooses which columns are shown.

import { h } from "../core/dom.js";
import { button, checkbox, count, field, input } from "./controls.js";
import { Modal } from "./modal.js";

/** More columns than this are found by typing a part of their name. */
const MAX_LISTED = 200;

/** @param {string[]} names @param {string[]} hidden @param {(hidden: string[]) => void} use gets the names that are hidden from now on */
export function chooseColumns(names, hidden, use) {
  const off = new Set(hidden);
  const list = h("div", { class: "column-list" });
  const note = h("p", { class: "quiet", role: "status" });
  const search = input({ type: "search", on: { input: () => show() }, autofocus: true });
  const matching = () => names.filter((name) => name.toLowerCase().includes(search.value.toLowerCase()));
  const show = () => {
    const found = matching();
    list.replaceChildren(
      ...found
        .slice(0, MAX_LISTED)
        .map((name) => checkbox(name, !off.has(name), (isOn) => (isOn ? off.delete(name) : off.add(name)))),
    );
    note.textContent =
      found.length > MAX_LISTED
        ? `${count(MAX_LISTED)} of ${count(found.length)} columns are listed. Type a part of a name to find others.`
        : "";
  };
  const all = (/** @type {boolean} */ isOn) => {
    for (const name of matching()) isOn ? off.delete(name) : off.add(name);
    show();
  };
  const modal = new Modal(
    "Columns",
    [
      field("Find", search),
      h(
        "div",
        { class: "actions" },
        button("Show all", () => all(true)),
        button("Hide all", () => all(false)),
      ),
      list,
      note,
    ],
    { action: { text: "Apply", act: () => use([...off]) } },
  );
  show();
  modal.open();
}
