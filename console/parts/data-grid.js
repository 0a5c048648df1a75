// A grid of any number of rows and columns, of which only those in sight are elements.
//
// Keys: arrows, Home, End, Page Up and Down move; Space selects; Enter opens; Ctrl+C copies the cell; S sorts by the column.

import { h, newId } from "../core/dom.js";
import { visible } from "../core/visible.js";
import { copy } from "./controls.js";
import { GridColumns, SELECT_WIDTH } from "./grid-columns.js";

const ROW_HEIGHT = 28;
const OVERSCAN = 4;

/** Events: `rowopen` and `rowactive` (detail: the row), `rowselect`, `sort`, `columnresize` (detail: widths by column). */
export class DataGrid extends HTMLElement {
  #columns = new GridColumns([], {});
  /** @type {any[]} */
  #rows = [];
  /** @type {any[]} */
  #shown = [];
  #row = 0;
  #column = 0;
  #prefix = newId();
  #isDrawing = false;
  /** @type {Sorted | null} */
  sorted = null;
  /** @type {Set<any>} */
  selected = new Set();
  isSelectable = false;
  label = "";
  /** Names a row to screen readers. @type {(row: any) => string} */
  nameOf = () => "row";

  #header = h("div", { class: "grid-header", role: "row", "aria-rowindex": 1 });
  #body = h("div", { class: "grid-body", role: "rowgroup" });
  #scroller = h(
    "div",
    { class: "grid-scroller", role: "grid", tabIndex: 0 },
    h("div", { role: "rowgroup", class: "grid-head-group" }, this.#header),
    this.#body,
  );

  connectedCallback() {
    this.replaceChildren(this.#scroller);
    this.#scroller.setAttribute("aria-label", this.label);
    this.#scroller.addEventListener("scroll", () => this.#later());
    this.#scroller.addEventListener("keydown", (event) => this.#key(event));
    this.#body.addEventListener("click", (event) => this.#click(event));
    this.#body.addEventListener("dblclick", (event) => this.#open(event));
    new ResizeObserver(() => this.#later()).observe(this.#scroller);
    this.#refresh();
  }

  /** @param {Column[]} columns @param {Record<string, number>} [widths] */
  setColumns(columns, widths = {}) {
    this.#columns = new GridColumns(columns, widths, this.isSelectable);
    this.#column = Math.min(this.#column, Math.max(0, columns.length - 1));
    this.#refresh();
  }

  get rows() {
    return this.#rows;
  }

  /** The selection stays with rows that are still there. @param {any[]} rows */
  set rows(rows) {
    this.#rows = rows;
    const here = new Set(rows);
    for (const row of this.selected) if (!here.has(row)) this.selected.delete(row);
    this.#row = Math.min(this.#row, Math.max(0, rows.length - 1));
    this.#refresh();
  }

  get activeRow() {
    return this.#shown[this.#row];
  }

  get activeColumn() {
    return this.#columns.list[this.#column];
  }

  focusGrid() {
    this.#scroller.focus();
  }

  /** Makes the first row that fits the active one, and focuses it. @param {(row: any) => boolean} fits */
  focusRow(fits) {
    const index = this.#shown.findIndex(fits);
    if (index >= 0) this.#moveTo(index, 0);
    this.focusGrid();
  }

  /** The pixels that columns have without scrolling sideways. */
  get room() {
    return this.#scroller.clientWidth - (this.isSelectable ? SELECT_WIDTH : 0);
  }

  /** Shows the rows from the first one again. */
  toTop() {
    this.#row = 0;
    this.#scroller.scrollTop = 0;
  }

  /** Sorts by a column, then in reverse, then not at all: what is loaded, unless the server sorts by it. @param {string} id */
  sortBy(id) {
    if (this.sorted?.id !== id) this.sorted = { id, isDown: false };
    else this.sorted = this.sorted.isDown ? null : { id, isDown: true };
    this.#refresh();
    this.dispatchEvent(new CustomEvent("sort"));
  }

  #refresh() {
    this.#shown = this.#inOrder();
    this.#scroller.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    this.#scroller.setAttribute("aria-colcount", String(this.#columns.list.length + this.#offset));
    this.#body.style.height = `${this.#shown.length * ROW_HEIGHT}px`;
    this.#body.style.width = this.#header.style.width = `${this.#columns.total}px`;
    this.#draw();
  }

  get #offset() {
    return this.isSelectable ? 1 : 0;
  }

  #inOrder() {
    const column = this.#columns.list.find(({ id }) => id === this.sorted?.id);
    if (!column || !this.sorted || column.isSortedByServer) return this.#rows;
    const order =
      column.compare ?? ((a, b) => (column.text(a) < column.text(b) ? -1 : column.text(a) > column.text(b) ? 1 : 0));
    const sign = this.sorted.isDown ? -1 : 1;
    return [...this.#rows].sort((a, b) => sign * order(a, b));
  }

  #later() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#draw();
    });
  }

  #draw() {
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = this.#scroller;
    const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(this.#shown.length, Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + OVERSCAN);
    const columns = this.#columns.between(scrollLeft, scrollLeft + clientWidth);
    this.#header.replaceChildren(
      ...(this.isSelectable ? [this.#selectAll()] : []),
      ...columns.map((index) => this.#headerCell(index)),
    );
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.#drawRow(index, columns));
    this.#body.replaceChildren(...rows);
    this.#markActive();
  }

  #selectAll() {
    const all = this.#shown.length > 0 && this.selected.size === this.#shown.length;
    const box = h("input", {
      type: "checkbox",
      tabIndex: -1,
      checked: all,
      "aria-label": "Select all loaded rows",
      on: { change: () => this.#toggleAll(box.checked) },
    });
    return place(
      h("div", { class: "grid-cell grid-check", role: "columnheader", "aria-colindex": 1 }, box),
      0,
      SELECT_WIDTH,
    );
  }

  /** @param {boolean} isChecked */
  #toggleAll(isChecked) {
    this.selected = new Set(isChecked ? this.#shown : []);
    this.#selectionChanged();
  }

  #selectionChanged() {
    this.#draw();
    this.dispatchEvent(new CustomEvent("rowselect"));
  }

  /** @param {number} index */
  #headerCell(index) {
    const column = this.#columns.list[index];
    const isSorted = this.sorted?.id === column.id;
    const direction = this.sorted?.isDown ? "descending" : "ascending";
    const title = `Sort by ${column.title}${column.sorting ? `: ${column.sorting}` : ""}`;
    const sorter = h(
      "button",
      { type: "button", tabIndex: -1, title, on: { click: () => this.sortBy(column.id) } },
      h("span", { class: "grid-title" }, column.title),
      column.hint && h("span", { class: "grid-hint" }, column.hint),
      isSorted && h("span", { class: "grid-sorted", "aria-hidden": "true" }, this.sorted?.isDown ? "▼" : "▲"),
    );
    const edge = h("span", { class: "grid-edge", on: { pointerdown: (event) => this.#drag(event, index) } });
    const cell = h(
      "div",
      {
        class: `grid-cell ${column.isNumber ? "number" : ""}`,
        role: "columnheader",
        "aria-colindex": index + 1 + this.#offset,
        "aria-sort": isSorted ? direction : "none",
      },
      sorter,
      edge,
    );
    return place(cell, this.#columns.left(index), this.#columns.width(index));
  }

  /** @param {PointerEvent} event @param {number} index */
  #drag(event, index) {
    event.preventDefault();
    const [from, width] = [event.clientX, this.#columns.width(index)];
    const stop = new AbortController();
    const move = (/** @type {PointerEvent} */ moved) => this.#resize(index, width + moved.clientX - from);
    addEventListener("pointermove", move, { signal: stop.signal });
    addEventListener("pointerup", () => stop.abort(), { once: true });
  }

  /** @param {number} index @param {number} width */
  #resize(index, width) {
    this.#columns.resize(index, width);
    this.#refresh();
    this.dispatchEvent(new CustomEvent("columnresize", { detail: this.#columns.widths }));
  }

  /** @param {number} index @param {number[]} columns */
  #drawRow(index, columns) {
    const row = this.#shown[index];
    const isSelected = this.selected.has(row);
    const element = h("div", {
      class: "grid-row",
      role: "row",
      "aria-rowindex": index + 2,
      "aria-selected": this.isSelectable ? isSelected : undefined,
    });
    element.style.top = `${index * ROW_HEIGHT}px`;
    if (this.isSelectable) element.append(this.#checkCell(row, isSelected));
    element.append(...columns.map((column) => this.#cell(row, index, column)));
    return element;
  }

  /** @param {any} row @param {boolean} isSelected */
  #checkCell(row, isSelected) {
    const box = h("input", {
      type: "checkbox",
      tabIndex: -1,
      checked: isSelected,
      "aria-label": `Select ${this.nameOf(row)}`,
    });
    return place(
      h("div", { class: "grid-cell grid-check", role: "gridcell", "aria-colindex": 1 }, box),
      0,
      SELECT_WIDTH,
    );
  }

  /** @param {any} row @param {number} index @param {number} at */
  #cell(row, index, at) {
    const column = this.#columns.list[at];
    const cell = h(
      "div",
      {
        class: `grid-cell ${column.isNumber ? "number" : ""} ${column.style?.(row) ?? ""}`,
        role: "gridcell",
        id: this.#cellId(index, at),
        "aria-colindex": at + 1 + this.#offset,
      },
      // Keys move the active cell, so that a link is no stop of its own.
      column.href ? h("a", { href: column.href(row), tabIndex: -1 }, visible(column.text(row))) : visible(column.text(row)),
    );
    return place(cell, this.#columns.left(at), this.#columns.width(at));
  }

  /** @param {number} row @param {number} column */
  #cellId(row, column) {
    return `${this.#prefix}-${row}-${column}`;
  }

  #markActive() {
    this.querySelector(".grid-active")?.classList.remove("grid-active");
    const cell = document.getElementById(this.#cellId(this.#row, this.#column));
    cell?.classList.add("grid-active");
    if (cell) this.#scroller.setAttribute("aria-activedescendant", cell.id);
    else this.#scroller.removeAttribute("aria-activedescendant");
  }

  /** @param {number} row @param {number} column */
  #moveTo(row, column) {
    this.#row = Math.max(0, Math.min(row, this.#shown.length - 1));
    this.#column = Math.max(0, Math.min(column, this.#columns.list.length - 1));
    this.#reveal();
    this.dispatchEvent(new CustomEvent("rowactive", { detail: this.activeRow }));
  }

  #reveal() {
    const scroller = this.#scroller;
    const top = this.#row * ROW_HEIGHT;
    const room = scroller.clientHeight - ROW_HEIGHT - this.#header.offsetHeight;
    scroller.scrollTop = Math.min(top, Math.max(scroller.scrollTop, top - room));
    const left = this.#columns.left(this.#column);
    const right = left + this.#columns.width(this.#column);
    if (left - this.#columns.start < scroller.scrollLeft) scroller.scrollLeft = left - this.#columns.start;
    else if (right > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = right - scroller.clientWidth;
    if (document.getElementById(this.#cellId(this.#row, this.#column))) this.#markActive();
    else this.#draw();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.target !== this.#scroller || !this.#shown.length) return;
    if (this.#move(event) || this.#act(event)) event.preventDefault();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was one that moves */
  #move(event) {
    const isFar = event.ctrlKey || event.metaKey;
    const page = Math.max(1, Math.floor(this.#scroller.clientHeight / ROW_HEIGHT) - 2);
    const end = this.#columns.list.length - 1;
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowDown: [this.#row + 1, this.#column],
      ArrowUp: [this.#row - 1, this.#column],
      ArrowRight: [this.#row, this.#column + 1],
      ArrowLeft: [this.#row, this.#column - 1],
      PageDown: [this.#row + page, this.#column],
      PageUp: [this.#row - page, this.#column],
      Home: [isFar ? 0 : this.#row, 0],
      End: [isFar ? this.#shown.length - 1 : this.#row, end],
    };
    const move = moves[event.key];
    if (!move || event.altKey) return false;
    this.#moveTo(...move);
    return true;
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was one of ours */
  #act(event) {
    const isCommand = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (key === "enter") this.dispatchEvent(new CustomEvent("rowopen", { detail: this.activeRow }));
    else if (key === " " && this.isSelectable) this.#toggle(this.#row, event.shiftKey);
    else if (key === "c" && isCommand) copy(this.activeColumn.text(this.activeRow));
    else if (key === "a" && isCommand && this.isSelectable) this.#toggleAll(true);
    else if (key === "s" && !isCommand) this.sortBy(this.activeColumn.id);
    else return false;
    return true;
  }

  /** The row of the last toggle, where a range begins. */
  #anchor = 0;

  /** @param {number} index @param {boolean} isRange */
  #toggle(index, isRange) {
    const isOn = !this.selected.has(this.#shown[index]);
    const [from, to] = isRange ? [Math.min(this.#anchor, index), Math.max(this.#anchor, index)] : [index, index];
    for (const row of this.#shown.slice(from, to + 1)) {
      if (isOn || isRange) this.selected.add(row);
      else this.selected.delete(row);
    }
    this.#anchor = index;
    this.#selectionChanged();
  }

  /** @param {MouseEvent} event @returns {{ row: number, column: number } | null} */
  #placeOf(event) {
    const target = /** @type {Element} */ (event.target);
    const row = target.closest(".grid-row")?.getAttribute("aria-rowindex");
    const column = target.closest(".grid-cell")?.getAttribute("aria-colindex");
    return row && column ? { row: Number(row) - 2, column: Number(column) - 1 - this.#offset } : null;
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const at = this.#placeOf(event);
    if (!at) return;
    if (at.column < 0) this.#toggle(at.row, event.shiftKey);
    else this.#moveTo(at.row, at.column);
    this.#scroller.focus({ preventScroll: true });
  }

  /** @param {MouseEvent} event */
  #open(event) {
    const at = this.#placeOf(event);
    if (at && at.column >= 0) this.dispatchEvent(new CustomEvent("rowopen", { detail: this.#shown[at.row] }));
  }
}

/** @template {HTMLElement} T @param {T} cell @param {number} left @param {number} width */
function place(cell, left, width) {
  cell.style.left = `${left}px`;
  cell.style.width = `${width}px`;
  return cell;
}

customElements.define("data-grid", DataGrid);
