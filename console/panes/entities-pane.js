// The entities of a table: filter, grid, pages, and what can be done with them.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isCancelled, isShownHere } from "../core/errors.js";
import { Orders } from "../core/orders.js";
import { Pager } from "../core/pager.js";
import { preferencesOf, remember } from "../core/preferences.js";
import { addressOf, currentRoute } from "../core/route.js";
import { session } from "../core/session.js";
import { TableService } from "../core/table-service.js";
import { View } from "../core/view.js";
import { chooseColumns } from "../parts/column-chooser.js";
import { button, count, empty, errorBox, input, paneHead, select } from "../parts/controls.js";
import { CellBar } from "../parts/cell-bar.js";
import { DataGrid } from "../parts/data-grid.js";
import { askAndDelete } from "../parts/delete-dialog.js";
import { columnsOf, typesOf } from "../parts/entity-columns.js";
import { addEntity, editEntity } from "../parts/entity-editor.js";
import { ExplainView } from "../parts/explain-view.js";
import { askAndExport } from "../parts/export-dialog.js";
import { FilterBuilder } from "../parts/filter-builder.js";
import { askAndImport } from "../parts/import-dialog.js";
import { showSnippets } from "../parts/snippets-dialog.js";

const SIZES = [100, 1000, 10000, 100000];

class EntitiesPane extends View {
  route = currentRoute();
  table = this.route.table;
  service = new TableService(this.route.account);
  preferences = preferencesOf(this.route.account, this.table);
  orders = new Orders(this.route.account, this.table);
  pager = new Pager(this.service, this.table, { filter: "", order: "" }, 1000);
  #loading = new AbortController();

  #filter = input({
    class: "mono filter",
    placeholder: "PartitionKey eq 'Jones' and Age gt 30",
    "aria-label": "Filter",
    type: "search",
  });
  #size = select(
    SIZES.map((size) => [String(size), count(size)]),
    "1000",
    { "aria-label": "Rows per page", on: { change: () => this.run() } },
  );
  #grid = Object.assign(new DataGrid(), {
    isSelectable: true,
    label: `Entities of ${this.table}`,
    nameOf: (/** @type {any} */ row) => `${row.partitionKey} / ${row.rowKey}`,
  });
  #cell = new CellBar();
  #state = h("span", { class: "grow", role: "status" });
  #message = h("div", { class: "message" });
  #builder = Object.assign(new FilterBuilder(), { hidden: true });
  #explain = Object.assign(new ExplainView(), { hidden: true, account: this.route.account, table: this.table });
  #back = button("Previous page", () => this.load(-1));
  #next = button("Next page", () => this.load(1));
  #stop = button("Stop", () => this.#loading.abort());
  #forOne = [
    button("Edit", () => this.edit(this.#ticked), { changes: true }),
    button("Clone", () => this.add(this.#ticked), { changes: true }),
  ];
  #deleteSelected = button("Delete selected", () => this.deleteSelected(), { kind: "danger", changes: true });
  #deleteFound = button("Delete all found", () => this.deleteFound(), { kind: "danger", changes: true });
  #forServer = [
    button("Add", () => this.add(null), { kind: "primary", changes: true }),
    button("Import", () => this.import(), { changes: true }),
  ];
  /** The total of the table, as the server knows it. @type {TableTotal | null} */
  #total = null;

  build() {
    const trail = h(
      "span",
      { class: "trail" },
      h("a", { href: addressOf("tables", this.route.account) }, "Tables"),
      h("span", { "aria-hidden": "true" }, "/"),
      this.table,
    );
    const toggle = (/** @type {string} */ text, /** @type {HTMLElement} */ part, opened = () => {}) => {
      const control = button(text, () => {
        part.hidden = !part.hidden;
        control.setAttribute("aria-expanded", String(!part.hidden));
        if (!part.hidden) opened();
      });
      control.setAttribute("aria-expanded", "false");
      return control;
    };
    return [
      paneHead(
        trail,
        ...this.#forServer,
        button("Export", () => askAndExport(this.source)),
        button("Columns", () => this.chooseColumns()),
        button("Code", () =>
          showSnippets({ kind: "query", account: this.route.account, table: this.table, filter: this.#filter.value }),
        ),
        this.#deleteFound,
      ),
      h(
        "form",
        { class: "filter-bar", role: "search", on: { submit: (event) => (event.preventDefault(), this.run()) } },
        this.#filter,
        button("Run", () => {}, { kind: "primary", type: "submit" }),
        toggle("Builder", this.#builder),
        toggle("Explain", this.#explain, () => this.#explain.open()),
      ),
      this.#builder,
      this.#explain,
      this.#message,
      this.#grid,
      this.#cell,
      h(
        "footer",
        { class: "pane-foot" },
        this.#state,
        this.#stop,
        this.#forOne,
        this.#deleteSelected,
        this.#size,
        this.#back,
        this.#next,
      ),
    ];
  }

  start() {
    this.#builder.addEventListener("filter", (event) => this.use(/** @type {CustomEvent} */ (event).detail));
    this.#filter.addEventListener("input", () => this.#explainQuery());
    this.#grid.addEventListener("sort", () => this.sort());
    this.#grid.addEventListener("rowopen", (event) => this.edit(/** @type {CustomEvent} */ (event).detail));
    this.#grid.addEventListener("rowselect", () => this.#showState());
    this.#grid.addEventListener("rowactive", () => this.#showCell());
    this.#grid.addEventListener("columnresize", (event) =>
      this.#keep({ widths: /** @type {CustomEvent} */ (event).detail }),
    );
    const { signal } = this;
    for (const change of ["lost", "back"]) connection.addEventListener(change, () => this.#showServed(), { signal });
    this.#explainQuery();
    this.run();
  }

  /** The entity that buttons for one entity act on. @returns {Entity} */
  get #ticked() {
    const [entity] = this.#grid.selected;
    return entity;
  }

  /** What the filter finds. @returns {Source} */
  get source() {
    return { service: this.service, table: this.table, filter: this.pager.filter };
  }

  /** @param {string} filter */
  use(filter) {
    this.#filter.value = filter;
    this.#explainQuery();
    this.run();
  }

  /** The order to ask the server for. */
  get #order() {
    return this.orders.text(this.#grid.sorted);
  }

  #explainQuery() {
    this.#explain.update(this.#filter.value, this.#order);
  }

  /** Asks the server, unless the grid alone can sort. */
  async sort() {
    if (this.#order === this.pager.order) return this.#showState();
    this.#explainQuery();
    await this.run();
  }

  /** Begins at the first page. */
  async run() {
    const query = { filter: this.#filter.value.trim(), order: this.#order };
    this.pager = new Pager(this.service, this.table, query, Number(this.#size.value));
    this.#grid.toTop();
    this.#total = null;
    await this.load(0);
    await this.#measure();
  }

  /** Asks how many entities the table has, if that is not seen. */
  async #measure() {
    const { pager, table } = this;
    if (!pager.hasNext || pager.filter) return;
    const query = { account: this.route.account, from: table.toLowerCase(), limit: 1 };
    const found = await connection.json("GET", "tables", { query, signal: this.signal }).catch(() => null);
    const measured = found?.tables.find((/** @type {Table} */ { name }) => name.toLowerCase() === table.toLowerCase());
    if (!measured || pager !== this.pager) return;
    this.#total = measured.total;
    this.#showState();
  }

  /** @param {-1 | 0 | 1} step */
  async load(step) {
    this.#loading.abort();
    const loading = (this.#loading = new AbortController());
    const { pager } = this;
    this.#setBusy(true);
    try {
      const signal = AbortSignal.any([loading.signal, this.signal]);
      const progress = (/** @type {number} */ rows) => {
        if (this.#loading === loading) this.#state.textContent = `Loading: ${count(rows)} rows`;
      };
      const orders = step === 0 && this.orders.load(signal);
      await Promise.all([orders, pager.load(step, signal, progress)]);
      if (this.#loading === loading) this.#show();
    } catch (error) {
      if (this.#loading === loading) this.#failed(error);
    } finally {
      if (this.#loading === loading) this.#setBusy(false);
    }
  }

  /** @param {boolean} isBusy */
  #setBusy(isBusy) {
    this.#stop.hidden = !isBusy;
    this.#back.disabled = isBusy || !this.pager.hasBack;
    this.#next.disabled = isBusy || !this.pager.hasNext;
    if (isBusy) this.#grid.classList.remove("stale");
    this.#grid.setAttribute("aria-busy", String(isBusy));
  }

  /** @param {unknown} error */
  #failed(error) {
    const isStale = this.#grid.rows.length > 0;
    this.#grid.classList.toggle("stale", isStale);
    const words = [isCancelled(error) && "Stopped.", isStale && "These rows are from the previous query."];
    this.#state.textContent = words.filter(Boolean).join(" ");
    this.#deleteFound.disabled = true;
    if (!isShownHere(error)) return;
    this.#message.replaceChildren(errorBox(error));
    this.#explain.isToldElsewhere(this.pager.filter);
  }

  #show() {
    const { rows } = this.pager;
    this.#message.replaceChildren(...(rows.length ? [] : [this.#nothing()]));
    this.#grid.hidden = rows.length === 0;
    this.#builder.types = typesOf(rows);
    this.#grid.rows = rows;
    this.#showColumns();
    this.#showState();
    this.#showCell();
  }

  #showColumns() {
    const hidden = new Set(this.preferences.hidden);
    const columns = columnsOf(this.pager.rows, hidden, this.orders, this.#grid.sorted);
    this.#grid.setColumns(columns, this.preferences.widths);
  }

  #nothing() {
    if (this.pager.filter)
      return empty(
        "Nothing matches",
        "No entity matches this filter. Change it, or show all entities.",
        button("Show all", () => this.use("")),
      );
    if (this.pager.hasBack)
      return empty(
        "The end",
        "There are no more entities after the previous page.",
        button("First page", () => this.run()),
      );
    return empty(
      "No entities yet",
      "Add the first one, or import a CSV or NDJSON file.",
      button("Add entity", () => this.add(null), { kind: "primary", changes: true }),
      button("Import", () => this.import(), { changes: true }),
    );
  }

  #showState() {
    const selected = this.#grid.selected.size;
    const { rows, hasBack } = this.pager;
    const parts = [...this.#place(), ...this.#sorting()];
    if (selected) parts.push(`${count(selected)} selected`);
    else if (rows.length && !session.isReadOnly) parts.push("double click a row to edit it");
    this.#state.textContent = parts.join(" · ");
    this.#deleteSelected.hidden = selected === 0 || session.isReadOnly;
    this.#deleteFound.disabled = rows.length === 0 && !hasBack;
    for (const control of this.#forOne) control.disabled = selected !== 1;
    this.#showServed();
  }

  /** Which of the entities are on the page. @returns {string[]} */
  #place() {
    const { page, rows, hasBack, hasNext, before } = this.pager;
    const entities = `${count(rows.length)} ${rows.length === 1 ? "entity" : "entities"}`;
    if (!hasBack && !hasNext) return [entities];
    const last = before + rows.length;
    const total = hasNext ? totalInWords(this.#total, last) : ` of ${count(last)}`;
    return [`Page ${count(page + 1)}`, entities, `${count(before + 1)} to ${count(last)}${total}`];
  }

  /** What is sorted, where that is not all. @returns {string[]} */
  #sorting() {
    const { sorted } = this.#grid;
    const { hasBack, hasNext } = this.pager;
    if (!sorted || this.#order || (!hasBack && !hasNext)) return [];
    return [`only the rows of this page are sorted by ${sorted.id}`];
  }

  #showServed() {
    for (const control of this.#forServer) control.disabled = connection.isLost;
  }

  #showCell() {
    this.#cell.show(this.#grid.activeRow, this.#grid.activeColumn);
  }

  /** @param {Partial<Preferences>} changed */
  #keep(changed) {
    this.preferences = { ...this.preferences, ...changed };
    remember(this.route.account, this.table, this.preferences);
  }

  chooseColumns() {
    const names = ["PartitionKey", "RowKey", "Timestamp", ...typesOf(this.pager.rows).keys()];
    chooseColumns(names, this.preferences.hidden, (hidden) => {
      this.#keep({ hidden });
      this.#showColumns();
    });
  }

  /** @param {Entity | null} template */
  async add(template) {
    if (await addEntity(this.service, this.table, template)) await this.load(0);
    this.#grid.focusGrid();
  }

  /** @param {Entity} entity */
  async edit(entity) {
    if (this.#forOne[0].hidden) return;
    await editEntity(this.service, this.table, entity);
    // Whatever became of it, what is shown may be stale.
    await this.load(0);
    this.#grid.focusGrid();
  }

  async deleteSelected() {
    if (await askAndDelete(this.source, [...this.#grid.selected])) await this.load(0);
  }

  async deleteFound() {
    if (await askAndDelete(this.source, null)) await this.run();
  }

  async import() {
    if (await askAndImport(this.service, this.table)) await this.run();
  }
}

/** @param {TableTotal | null} total @param {number} seen entities up to the end of the page */
function totalInWords(total, seen) {
  if (!total || total.entities <= seen) return "";
  const basis = { exact: " of ", estimated: " of about ", atLeast: " of at least " };
  return `${basis[total.basis]}${count(total.entities)}`;
}

customElements.define("entities-pane", EntitiesPane);
