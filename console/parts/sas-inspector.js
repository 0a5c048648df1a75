// Shows what a SAS token means, and why the server refuses it.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { View } from "../core/view.js";
import { button, errorBox, field, input, select } from "./controls.js";

export class SasInspector extends View {
  account = "";
  #text = h("textarea", {
    class: "mono",
    rows: 4,
    spellcheck: false,
    placeholder: "https://…/People?sv=…&sig=… or only sv=…&sig=…",
  });
  #method = select(
    ["GET", "POST", "PUT", "PATCH", "DELETE"].map((method) => [method, method]),
    "GET",
  );
  #resource = input({ class: "mono", placeholder: "as in the address" });
  #ip = input({ class: "mono", placeholder: "any" });
  #answer = h("div", { class: "stack", role: "status" });
  /** Counts changes of the form: an answer is shown only for what the form says. */
  #version = 0;

  build() {
    const on = {
      submit: (/** @type {Event} */ event) => (event.preventDefault(), this.#inspect()),
      input: () => this.#forget(),
      change: () => this.#forget(),
    };
    return [
      h(
        "form",
        { class: "stack", on },
        field("Address or token", this.#text),
        h(
          "div",
          { class: "columns-2" },
          field("Method", this.#method),
          field("Resource", this.#resource, "People or People(PartitionKey='a',RowKey='b')"),
          field("Sent from", this.#ip),
        ),
        h(
          "div",
          { class: "actions" },
          button("Inspect", () => {}, { kind: "primary", type: "submit" }),
        ),
      ),
      this.#answer,
    ];
  }

  #forget() {
    this.#version += 1;
    this.#answer.replaceChildren();
  }

  /** @param {string} address */
  use(address) {
    this.#text.value = address;
    this.#forget();
  }

  async #inspect() {
    this.#forget();
    const version = this.#version;
    const text = this.#text.value.trim();
    const asked = {
      method: this.#method.value,
      resource: this.#resource.value.trim() || undefined,
      address: this.#ip.value.trim() || undefined,
    };
    const what = /^https?:/i.test(text) ? { url: text } : { token: text.replace(/^\?/, ""), account: this.account };
    try {
      const inspection = await connection.exchange("POST", "sas/inspect", { ...what, ...asked });
      if (version === this.#version) this.#answer.replaceChildren(...described(inspection));
    } catch (error) {
      if (version === this.#version) this.#answer.replaceChildren(errorBox(error));
    }
  }
}

/** @param {Inspection} inspection @returns {HTMLElement[]} */
function described({ kind, fields, stringToSign, signedBy, valid, problems, action }) {
  const verdict = h(
    "p",
    {},
    h("span", { class: `badge ${valid ? "good" : "bad"}` }, valid ? "Valid" : "Refused"),
    ` A token for ${kind === "account" ? "the account" : "a table"}, ${signedBy ? `signed with key ${signedBy}` : "not signed with a key of this account"}.`,
  );
  const rows = fields.map(({ name, value, meaning }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "mono" }, name),
      h("td", { class: "mono" }, value),
      h("td", {}, meaning),
    ),
  );
  return [
    verdict,
    h(
      "ul",
      { class: "problems" },
      problems.map(({ code, message }) => h("li", {}, `${message} (${code})`)),
    ),
    ...(action ? [actionOf(action, valid)] : []),
    h(
      "div",
      { class: "scroll-x" },
      h(
        "table",
        { class: "plain" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Field", "Value", "Meaning"].map((title) => h("th", { scope: "col" }, title)),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
    h(
      "details",
      {},
      h("summary", {}, "String to sign"),
      h("pre", { tabIndex: 0, "aria-label": "String to sign" }, stringToSign),
    ),
  ];
}

/** @param {NonNullable<Inspection["action"]>} action @param {boolean} isValid a token that is refused allows nothing */
function actionOf({ name, allowed, code, message }, isValid) {
  if (allowed && !isValid) return h("p", { class: "quiet" }, `Its permissions include: ${name}.`);
  return h(
    "p",
    {},
    h("span", { class: `badge ${allowed ? "good" : "bad"}` }, allowed ? "May" : "May not"),
    ` ${name}${allowed ? "" : `: ${message ?? ""} (${code ?? ""})`}`,
  );
}

customElements.define("sas-inspector", SasInspector);
