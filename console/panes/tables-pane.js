// The tables of an account.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isCancelled, isShownHere } from "../core/errors.js";
import { addressOf, currentRoute } from "../core/route.js";
import { session } from "../core/session.js";
import { TableService } from "../core/table-service.js";
import { View } from "../core/view.js";
import { button, bytes, count, empty, errorBox, field, input, moment, paneHead } from "../parts/controls.js";
import { DataGrid } from "../parts/data-grid.js";
import { deletedTables, showDeleted } from "../parts/deleted-dialog.js";
import { editExpiry } from "../parts/expiry-dialog.js";
import { askAndImport } from "../parts/import-dialog.js";
import { editIndexes } from "../parts/indexes-dialog.js";
import { runJob } from "../parts/job-dialog.js";
import { confirmByName, Modal } from "../parts/modal.js";
import { editPolicies } from "../parts/policies-dialog.js";
import { showSnippets } from "../parts/snippets-dialog.js";

/** A figure, with a sign where the table holds more. @param {Table} row @param {string} figure */
const atLeast = (row, figure) => `${figure}${row.complete ? "" : " +"}`;

/** Pixels of a character of a name, the padding of a cell, and limits of the column of names. */
const CHARACTER = 8;
const PADDING = 24;
const MIN_NAME = 120;
const MAX_NAME = 420;

/** @type {Column[]} */
const FIGURES = [
  {
    id: "entities",
    title: "Entities",
    width: 96,
    isNumber: true,
    text: (row) => atLeast(row, count(row.entities)),
    compare: (a, b) => a.entities - b.entities,
  },
  {
    id: "bytes",
    title: "Size",
    width: 92,
    isNumber: true,
    text: (row) => atLeast(row, bytes(row.bytes)),
    compare: (a, b) => a.bytes - b.bytes,
  },
  {
    id: "created",
    title: "Created",
    width: 180,
    text: (row) => moment(row.created),
    compare: (a, b) => (a.created < b.created ? -1 : 1),
  },
];

class TablesPane extends View {
  account = currentRoute().account || session.account;
  service = new TableService(this.account);
  /** @type {Table[]} */
  tables = [];
  #message = h("div", { class: "message" });
  #state = h("span", { class: "grow", role: "status" });
  #search = input({
    type: "search",
    placeholder: "Find a table",
    "aria-label": "Find a table",
    on: { input: () => this.show() },
  });
  #grid = Object.assign(new DataGrid(), {
    isSelectable: true,
    label: "Tables",
    nameOf: (/** @type {Table} */ row) => row.name,
  });
  #forOne = [
    button("Open", () => this.open(this.#ticked)),
    button("Policies", () => editPolicies(this.service, this.#ticked.name)),
    button("Indexes", () => editIndexes(this.account, this.#ticked.name)),
    button("Expiry", () => editExpiry(this.account, this.#ticked.name)),
  ];
  /** How long a table that is deleted now can be brought back; 0s for not at all. */
  #kept = "0s";
  #deleted = button("Deleted", () => showDeleted(this.account, () => this.load()), {});
  #delete = button("Delete selected", () => this.delete(), { kind: "danger", changes: true });
  #forServer = [
    button("Create table", () => this.create(), { kind: "primary", changes: true }),
    button("Import", () => this.import(), { changes: true }),
  ];
  #createFirst = button("Create table", () => this.create(), { kind: "primary", changes: true });
  /** @type {Record<string, number>} */
  #widths = {};
  /** Whether the tables of the account are known. */
  #isLoaded = false;

  build() {
    return [
      paneHead(
        "Tables",
        ...this.#forServer,
        this.#deleted,
        button("Code", () => showSnippets({ kind: "tables", account: this.account })),
      ),
      h("div", { class: "filter-bar" }, this.#search),
      this.#message,
      this.#grid,
      h("footer", { class: "pane-foot" }, this.#state, this.#forOne, this.#delete),
    ];
  }

  start() {
    this.#deleted.hidden = true;
    this.#grid.addEventListener("rowopen", (event) => this.open(/** @type {CustomEvent} */ (event).detail));
    this.#grid.addEventListener("rowselect", () => this.#showState());
    this.#grid.addEventListener("columnresize", (event) => {
      this.#widths = /** @type {CustomEvent} */ (event).detail;
    });
    const { signal } = this;
    addEventListener("resize", () => this.#showColumns(), { signal });
    for (const change of ["lost", "back"]) connection.addEventListener(change, () => this.#showState(), { signal });
    connection.addEventListener("refused", () => this.#refused(), { signal });
    this.#showState();
    this.load();
  }

  /** The table that buttons for one table act on. @returns {Table} */
  get #ticked() {
    const [table] = this.#grid.selected;
    return table;
  }

  /** The column of names is as wide as they are, and leaves room for counts and sizes. */
  #showColumns() {
    if (this.#grid.hidden) return;
    const counts = FIGURES.slice(0, 2).reduce((sum, { width = 0 }) => sum + width, 0);
    const longest = this.tables.reduce((most, { name }) => Math.max(most, name.length), 0);
    const wanted = Math.min(MAX_NAME, Math.max(MIN_NAME, longest * CHARACTER + PADDING));
    const width = Math.max(MIN_NAME, Math.min(wanted, this.#grid.room - counts));
    const href = (/** @type {Table} */ row) => addressOf("entities", this.account, row.name);
    const text = (/** @type {Table} */ row) => row.name;
    this.#grid.setColumns([{ id: "name", title: "Table", width, text, href, style: () => "key" }, ...FIGURES], this.#widths);
  }

  async load() {
    if (!this.account)
      return this.#tell(
        empty(
          "No account yet",
          "Tables belong to an account. Add one first.",
          h("a", { class: "button primary", href: addressOf("accounts") }, "Accounts"),
        ),
      );
    try {
      await Promise.all([this.#measure(), this.#countDeleted()]);
    } catch (error) {
      if (isShownHere(error)) this.#tell(errorBox(error));
    }
  }

  /** The page has no token any more, until a sign-in makes this pane anew. */
  #refused() {
    this.#isLoaded = false;
    this.#showState();
  }

  /** @param {Node} message */
  #tell(message) {
    this.#message.replaceChildren(message);
    this.#grid.hidden = true;
    this.#showState();
  }

  async #countDeleted() {
    const { keepDeleted, tables, more } = await deletedTables(this.account);
    this.#kept = keepDeleted;
    this.#deleted.hidden = keepDeleted === "0s" && tables.length === 0;
    this.#deleted.textContent = `Deleted (${count(tables.length)}${more ? " +" : ""})`;
  }

  /** The server measures some tables at a time, which are shown as they come. */
  async #measure() {
    /** @type {Table[]} */
    const found = [];
    let from = "";
    do {
      const page = await connection.json("GET", "tables", {
        query: { account: this.account, from },
        signal: this.signal,
      });
      found.push(...page.tables);
      from = page.next ?? "";
      this.tables = found;
      this.#isLoaded = true;
      this.show();
    } while (from);
  }

  show() {
    if (!this.#isLoaded) return;
    const wanted = this.#search.value.toLowerCase();
    const shown = this.tables.filter(({ name }) => name.toLowerCase().includes(wanted));
    this.#message.replaceChildren();
    this.#grid.hidden = shown.length === 0;
    this.#grid.rows = shown;
    this.#showColumns();
    this.#showState();
    if (this.tables.length === 0)
      this.#tell(
        empty(
          "No tables yet",
          "Create the first one, or import a CSV or NDJSON file into a new one.",
          this.#createFirst,
        ),
      );
    else if (shown.length === 0) this.#tell(empty("No such table", `The name of no table contains ${this.#search.value}.`));
  }

  #showState() {
    const selected = this.#grid.selected.size;
    const { length } = this.tables;
    const parts = this.#isLoaded ? [`${count(length)} ${length === 1 ? "table" : "tables"}`] : [];
    if (selected) parts.push(`${count(selected)} selected`);
    if (this.tables.some(({ complete }) => !complete)) parts.push("+ means that the table holds more than was counted");
    if (this.#grid.rows.length && !selected) parts.push("click a name to open the table, tick a table for the buttons here");
    this.#state.textContent = parts.join(" · ");
    this.#delete.hidden = selected === 0 || session.isReadOnly;
    for (const control of this.#forOne) control.disabled = selected !== 1;
    const isServed = this.#isLoaded && !connection.isLost;
    for (const control of [...this.#forServer, this.#createFirst]) control.disabled = !isServed;
  }

  /** @param {Table} table */
  open(table) {
    location.hash = addressOf("entities", this.account, table.name);
  }

  async create() {
    const name = input({ class: "mono", autofocus: true });
    let created = "";
    const modal = new Modal(
      "Create table",
      [field("Name", name, "3 to 63 letters and digits; the first one is a letter.")],
      {
        action: {
          text: "Create",
          act: async () => {
            await this.service.createTable(name.value.trim());
            created = name.value.trim();
            this.#search.value = "";
            await this.load();
          },
        },
      },
    );
    await modal.open().closed;
    if (created) this.#grid.focusRow((/** @type {Table} */ table) => table.name === created);
  }

  async import() {
    if (await askAndImport(this.service)) await this.load();
  }

  async delete() {
    const names = [...this.#grid.selected].map((/** @type {Table} */ table) => table.name);
    const isOne = names.length === 1;
    let isConfirmed = false;
    const modal = confirmByName({
      title: isOne ? "Delete table" : `Delete ${count(names.length)} tables`,
      text: `All their entities are deleted with them. ${
        this.#kept === "0s" ? "This cannot be undone." : `They can be brought back for ${this.#kept}.`
      }`,
      more: h("p", { class: "mono names" }, names.join(", ")),
      name: isOne ? names[0] : `${names.length} tables`,
      action: "Delete",
      act: async () => {
        isConfirmed = true;
      },
    });
    await modal.closed;
    if (!isConfirmed) return;
    await runJob("Delete tables", { total: names.length, done: "deleted", work: (job) => this.#deleteAll(names, job) });
    await this.load();
  }

  /** @param {string[]} names @param {Job} job */
  async #deleteAll(names, job) {
    for (const name of names) {
      try {
        await this.service.deleteTable(name, job.signal);
        job.advance(1);
      } catch (error) {
        if (isCancelled(error)) throw error;
        job.fail(`${name}: ${error instanceof Error ? error.message : error}`);
      }
    }
  }
}

customElements.define("tables-pane", TablesPane);
