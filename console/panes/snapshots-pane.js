// Test mode: snapshots of all accounts or one, reset, and faults.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { button, empty, errorBox, field, moment, paneHead, select } from "../parts/controls.js";
import { FaultRules } from "../parts/fault-rules.js";
import { confirmByName } from "../parts/modal.js";

class SnapshotsPane extends View {
  #message = h("div", { class: "message" });
  #list = h("div", { class: "cards" });
  #faults = new FaultRules();
  #account = select(
    [["", "All accounts"], ...session.accounts.map(({ name }) => /** @type {[string, string]} */ ([name, name]))],
    "",
  );

  build() {
    return [
      paneHead(
        "Snapshots",
        button("Take snapshot", () => this.#run("POST", "test/snapshots", "Taken.", this.#query), {
          kind: "primary",
          changes: true,
        }),
        button("Reset", () => this.reset(), { kind: "danger", changes: true }),
      ),
      h(
        "p",
        { class: "quiet" },
        "This server runs in test mode. A reset deletes all tables; a snapshot brings back what was there when it was taken.",
      ),
      field("Accounts", this.#account),
      this.#message,
      this.#list,
      this.#faults,
    ];
  }

  start() {
    this.load();
  }

  get #query() {
    return { account: this.#account.value };
  }

  async load() {
    try {
      const { snapshots } = await connection.json("GET", "test/snapshots", { signal: this.signal });
      this.#list.replaceChildren(...snapshots.map((/** @type {Snapshot} */ snapshot) => this.#card(snapshot)));
      if (!snapshots.length)
        this.#list.append(empty("No snapshots yet", "Take one before a test changes something, and restore it after."));
    } catch (error) {
      if (isShownHere(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  /** @param {Snapshot} snapshot */
  #card({ name, account, taken }) {
    const path = `test/snapshots/${encodeURIComponent(name)}`;
    return h(
      "article",
      { class: "card row" },
      h(
        "div",
        { class: "grow" },
        h("h2", { class: "mono" }, name),
        h("p", { class: "quiet" }, `${account ?? "All accounts"}, ${moment(taken)}`),
      ),
      button("Restore", () => this.#run("POST", `${path}/restore`, "Restored."), {
        changes: true,
        label: `Restore ${name}`,
      }),
      button("Delete", () => this.#run("DELETE", path, "Deleted."), {
        kind: "danger",
        changes: true,
        label: `Delete ${name}`,
      }),
    );
  }

  /** @param {string} method @param {string} path @param {string} done @param {Record<string, string>} [query] */
  async #run(method, path, done, query) {
    try {
      await connection.json(method, path, { query });
      this.#message.replaceChildren(h("p", { class: "done", role: "status" }, done));
    } catch (error) {
      this.#message.replaceChildren(errorBox(error));
    }
    await Promise.all([this.load(), this.#faults.load()]);
  }

  reset() {
    const name = this.#account.value || "all accounts";
    confirmByName({
      title: "Reset",
      text: `All tables and service properties of ${name} are deleted, and faults removed.`,
      name: this.#account.value || "reset",
      action: "Reset",
      act: () => this.#run("POST", "test/reset", "Reset.", this.#query),
    });
  }
}

customElements.define("snapshots-pane", SnapshotsPane);
