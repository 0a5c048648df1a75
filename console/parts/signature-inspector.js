// Shows what a signature means, and why the server refuses it.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { View } from "../core/view.js";
import { button, errorBox, field, input, select } from "./controls.js";

export class SignatureInspector extends View {
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
  #resource = input({ class: "mono", placeholder: "that of the address" });
  #ip = input({ class: "mono", placeholder: "any" });
  #answer = h("div", { class: "stack", role: "status" });

  build() {
    return [
      h(
        "form",
        { class: "stack", on: { submit: (event) => (event.preventDefault(), this.#inspect()) } },
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
        this.#answer,
      ),
    ];
  }

  /** @param {string} address */
  use(address) {
    this.#text.value = address;
  }

  async #inspect() {
    const text = this.#text.value.trim();
    const asked = {
      method: this.#method.value,
      resource: this.#resource.value.trim() || undefined,
      address: this.#ip.value.trim() || undefined,
    };
    const what = /^https?:/i.test(text) ? { url: text } : { token: text.replace(/^\?/, ""), account: this.account };
    try {
      this.#answer.replaceChildren(
        ...described(await connection.exchange("POST", "sas/inspect", { ...what, ...asked })),
      );
    } catch (error) {
      this.#answer.replaceChildren(errorBox(error));
    }
  }
}

/** @param {Inspection} inspection @returns {HTMLElement[]} */
function described({ kind, fields, stringToSign, signedBy, valid, problems, action }) {
  const verdict = h(
    "p",
    {},
    h("span", { class: `badge ${valid ? "good" : "bad"}` }, valid ? "Valid" : "Refused"),
    ` A signature of ${kind === "account" ? "the account" : "a table"}, ${signedBy ? `signed by key ${signedBy}` : "signed by no key of this account"}.`,
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
    ...(action ? [actionOf(action)] : []),
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

/** @param {NonNullable<Inspection["action"]>} action */
function actionOf({ name, allowed, code, message }) {
  return h(
    "p",
    {},
    h("span", { class: `badge ${allowed ? "good" : "bad"}` }, allowed ? "May" : "May not"),
    ` ${name}${allowed ? "" : `: ${message ?? ""} (${code ?? ""})`}`,
  );
}

customElements.define("signature-inspector", SignatureInspector);
