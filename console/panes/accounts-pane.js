// The accounts of the server.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { addressOf } from "../core/route.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { button, copyable, empty, errorBox, field, input, moment, paneHead } from "../parts/controls.js";
import { confirmByName, Modal } from "../parts/modal.js";

class AccountsPane extends View {
  #message = h("div", { class: "message" });
  #list = h("div", { class: "cards" });

  build() {
    return [
      paneHead(
        "Accounts",
        button("Add account", () => this.add(), { kind: "primary", changes: true }),
      ),
      this.#message,
      this.#list,
    ];
  }

  start() {
    this.load();
  }

  async load() {
    const problem = await session.load().then(
      () => null,
      (error) => error,
    );
    if (problem) return isShownHere(problem) && this.#message.replaceChildren(errorBox(problem));
    const stored = await this.#stored();
    const cards = session.accounts.map((account) => this.#card(account, stored.get(account.name)));
    if (cards.length === 0)
      this.#message.replaceChildren(
        empty(
          "No accounts yet",
          "Tables belong to an account. Add the first one.",
          button("Add account", () => this.add(), { kind: "primary", changes: true }),
        ),
      );
    this.#list.replaceChildren(...cards);
    if (session.hasMoreAccounts)
      this.#list.append(h("p", { class: "quiet" }, "There are more accounts: rowhouse account list prints all of them."));
  }

  /** What the server keeps of the accounts in the database. @returns {Promise<Map<string, StoredAccount>>} */
  async #stored() {
    try {
      const found = await connection.json("GET", "accounts", { signal: this.signal });
      this.#message.replaceChildren();
      return new Map(found.map((/** @type {StoredAccount} */ account) => [account.name, account]));
    } catch (error) {
      if (isShownHere(error))
        this.#message.replaceChildren(
          h("p", { class: "notice" }, error instanceof Error ? error.message : String(error)),
        );
      return new Map();
    }
  }

  /** @param {Account} account @param {StoredAccount | undefined} stored */
  #card(account, stored) {
    const isDisabled = stored?.disabled ?? account.isDisabled;
    return h(
      "article",
      { class: "card" },
      h(
        "header",
        {},
        h("h2", {}, account.name),
        account.isOfSettings && h("span", { class: "badge" }, "from the settings"),
        isDisabled && h("span", { class: "badge warn" }, "disabled"),
      ),
      h(
        "dl",
        { class: "facts" },
        stored ? this.#facts(stored) : [fact("Keys", "In the settings of the server")],
        fact("Queries", account.hasExtendedQueries ? "extended" : "standard"),
      ),
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: addressOf("tables", account.name) }, "Tables"),
        button("Extended queries", () => this.queries(account), {
          changes: true,
          label: `Extended queries of ${account.name}`,
        }),
        stored ? this.#actions(stored) : null,
      ),
    );
  }

  /** @param {StoredAccount} stored */
  #facts(stored) {
    return [
      fact("Created", moment(stored.created)),
      fact("Key 1 created", moment(stored.rotated[0])),
      fact("Key 2 created", moment(stored.rotated[1])),
      fact(
        "Limit",
        stored.requestsPerSecond === null ? "server default" : `${stored.requestsPerSecond} requests a second`,
      ),
    ];
  }

  /** @param {StoredAccount} stored */
  #actions({ name, disabled, requestsPerSecond }) {
    return [
      button("Rotate key", () => this.rotate(name), { changes: true, label: `Rotate key of ${name}` }),
      button("Limit", () => this.limit(name, requestsPerSecond), { changes: true, label: `Limit ${name}` }),
      disabled
        ? button("Enable", () => this.#change("POST", `accounts/${name}/enable`), {
            changes: true,
            label: `Enable ${name}`,
          })
        : button("Disable", () => this.disable(name), { changes: true, label: `Disable ${name}` }),
      button("Remove", () => this.removeAccount(name), { kind: "danger", changes: true, label: `Remove ${name}` }),
    ];
  }

  /** @param {string} method @param {string} path */
  async #change(method, path) {
    try {
      await connection.json(method, path);
      await this.load();
    } catch (error) {
      this.#message.replaceChildren(errorBox(error));
    }
  }

  async add() {
    const name = input({ class: "mono", autofocus: true });
    /** @type {any} */
    let added = null;
    const modal = new Modal("Add account", [field("Name", name, "3 to 24 lower-case letters and digits.")], {
      action: {
        text: "Add",
        act: async () => {
          added = await connection.exchange("POST", "accounts", { name: name.value.trim() });
        },
      },
    });
    await modal.open().closed;
    if (!added) return;
    showKeys(`Keys of ${added.name}`, added.keys, added.connectionStrings ?? [added.connectionString]);
    await this.load();
  }

  /** @param {string} name */
  async rotate(name) {
    let slot = 1;
    const choice = choices("Which key", ["Key 1", "Key 2"], 0, (index) => {
      slot = index + 1;
    });
    /** @type {any} */
    let rotated = null;
    const modal = confirmByName({
      title: "Rotate key",
      text: `The old key of ${name} stops working at once, and so do all SAS tokens signed with it.`,
      name,
      action: "Rotate",
      more: choice,
      act: async () => {
        rotated = await connection.exchange("POST", `accounts/${name}/rotate`, { slot });
      },
    });
    await modal.closed;
    if (!rotated) return;
    showKeys(
      `New key ${rotated.slot} of ${name}`,
      [rotated.key],
      rotated.connectionStrings ?? [rotated.connectionString],
    );
    await this.load();
  }

  /** @param {string} name @param {number | null} now */
  async limit(name, now) {
    const rate = input({ value: now === null ? "" : String(now), inputMode: "numeric", autofocus: true });
    const modal = new Modal(
      `Limit ${name}`,
      [
        field(
          "Requests per second on each server",
          rate,
          "1 to 1,000,000. Leave it empty for the server default.",
        ),
      ],
      {
        action: {
          text: "Save",
          act: () =>
            connection.exchange("PUT", `accounts/${name}/limits`, { requestsPerSecond: numberOrNull(rate.value) }),
        },
      },
    );
    await modal.open().closed;
    await this.load();
  }

  /** @param {Account} account */
  async queries({ name, hasExtendedQueries }) {
    let extended = hasExtendedQueries;
    const choice = choices("Queries", ["Standard, as in Azure", "Extended"], extended ? 1 : 0, (index) => {
      extended = index === 1;
    });
    const modal = new Modal(
      `Extended queries of ${name}`,
      [h("p", {}, "Programs that use extended queries do not run on Azure."), choice],
      { action: { text: "Save", act: () => connection.exchange("PUT", `accounts/${name}/queries`, { extended }) } },
    );
    await modal.open().closed;
    await this.load();
  }

  /** @param {string} name */
  disable(name) {
    confirmByName({
      title: "Disable account",
      text: `All requests to ${name} are refused until you enable the account again.`,
      name,
      action: "Disable",
      act: () => this.#change("POST", `accounts/${name}/disable`),
    });
  }

  /** @param {string} name */
  removeAccount(name) {
    confirmByName({
      title: "Remove account",
      text: `The keys of ${name} are deleted. Its tables stay in the database.`,
      name,
      action: "Remove",
      act: () => this.#change("DELETE", `accounts/${name}`),
    });
  }
}

/** @param {string} text */
function numberOrNull(text) {
  if (text.trim() === "") return null;
  if (!/^\d{1,7}$/.test(text.trim())) throw new Error("Enter a whole number from 1 to 1,000,000, or nothing.");
  return Number(text);
}

/** One of several. @param {string} legend @param {string[]} texts @param {number} chosen @param {(index: number) => void} choose */
function choices(legend, texts, chosen, choose) {
  const options = texts.map((text, index) => {
    const on = { change: () => choose(index) };
    return h(
      "label",
      { class: "check" },
      h("input", { type: "radio", name: "choice", checked: index === chosen, on }),
      text,
    );
  });
  return h("fieldset", { class: "choices" }, h("legend", {}, legend), options);
}

/** @param {string} name @param {string} text */
const fact = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));

/** Keys are shown once: the server does not tell them again. @param {string} title @param {string[]} keys @param {(string | undefined)[]} strings */
function showKeys(title, keys, strings) {
  const copies = strings.filter((text) => text !== undefined);
  new Modal(
    title,
    [
      h("p", {}, "Copy them now: the server does not show them again."),
      keys.map((key, index) => copyable(keys.length === 1 ? "Key" : `Key ${index + 1}`, key)),
      copies.map((text, index) =>
        copyable(copies.length === 1 ? "Connection string" : `Connection string ${index + 1}`, text),
      ),
    ],
    { wide: true },
  ).open();
}

customElements.define("accounts-pane", AccountsPane);
