// The code, in five languages, for what is on the screen.

import { h } from "../core/dom.js";
import { LANGUAGES } from "../core/snippets.js";
import { session } from "../core/session.js";
import { copyButton, field, select } from "./controls.js";
import { Modal } from "./modal.js";

const CHOSEN = "rowhouse-language";

/** @param {Shown} shown */
export function showSnippets(shown) {
  const chosen = localStorage.getItem(CHOSEN) ?? "";
  const first = LANGUAGES.some(({ id }) => id === chosen) ? chosen : LANGUAGES[0].id;
  const language = select(
    LANGUAGES.map(({ id, title }) => [id, title]),
    first,
    { on: { change: () => show() } },
  );
  const code = h("code", {});
  const pre = h("pre", { tabIndex: 0, "aria-label": "Code" }, code);
  const show = () => {
    localStorage.setItem(CHOSEN, language.value);
    const found = LANGUAGES.find(({ id }) => id === language.value) ?? LANGUAGES[0];
    code.textContent = found.write(shown, session.endpoint);
  };
  show();
  new Modal(
    "Code",
    [
      field("SDK", language),
      pre,
      h(
        "div",
        { class: "actions" },
        copyButton(() => code.textContent ?? "", "Copy the code"),
      ),
      h("p", { class: "quiet" }, "TABLES_KEY is a key of the account; the console does not know it."),
    ],
    { wide: true },
  ).open();
}
