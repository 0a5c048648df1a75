// The requests that the server answers, as they come.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isCancelled } from "../core/errors.js";
import { View } from "../core/view.js";
import { button, count, empty, errorBox, input, paneHead, select } from "../parts/controls.js";
import { DataGrid } from "../parts/data-grid.js";

/** @type {[string, string][]} */
const STATUSES = [
  ["", "All"],
  ["2", "2xx: done"],
  ["3", "3xx"],
  ["4", "4xx: refused"],
  ["5", "5xx: failed"],
];

/** @param {string} field @returns {(a: any, b: any) => number} */
const by = (field) => (a, b) => (a[field] < b[field] ? -1 : a[field] > b[field] ? 1 : 0);

/** @type {Column[]} */
const COLUMNS = [
  {
    id: "time",
    title: "Time",
    width: 110,
    text: (row) => row.time.slice(11, 23),
    style: () => "quiet",
    compare: by("id"),
  },
  {
    id: "status",
    title: "Status",
    width: 70,
    isNumber: true,
    text: (row) => String(row.status),
    style: (row) => `status-${String(row.status)[0]}`,
  },
  { id: "operation", title: "Operation", width: 160, text: (row) => row.operation },
  { id: "account", title: "Account", width: 130, text: (row) => row.account ?? "" },
  { id: "table", title: "Table", width: 150, text: (row) => row.table ?? "" },
  {
    id: "took",
    title: "Took",
    hint: "ms",
    width: 90,
    isNumber: true,
    text: (row) => milliseconds(row.milliseconds),
    compare: by("milliseconds"),
  },
  {
    id: "store",
    title: "Database",
    hint: "ms",
    width: 130,
    isNumber: true,
    text: (row) => milliseconds(row.storeMilliseconds),
    compare: by("storeMilliseconds"),
  },
  { id: "error", title: "Error", width: 220, text: (row) => row.error ?? "" },
  { id: "reason", title: "Reason", width: 420, text: (row) => row.reason ?? "" },
  { id: "request", title: "Request", width: 300, text: (row) => row.requestId, style: () => "quiet" },
];

const KEPT = 2000;
const BATCH = 500;
const SECONDS = 1;

/** @param {number | null | undefined} value */
const milliseconds = (value) => (value === null || value === undefined ? "" : value.toFixed(value < 10 ? 2 : 0));

class RequestsPane extends View {
  /** @type {any[]} */
  requests = [];
  #after = 0;
  #isPaused = false;
  #message = h("div", { class: "message" });
  #state = h("span", { class: "grow", role: "status" });
  #status = select(STATUSES, "", { "aria-label": "Status", on: { change: () => this.show() } });
  #search = input({
    type: "search",
    placeholder: "Account, table, operation, error, request id",
    "aria-label": "Find",
    on: { input: () => this.show() },
  });
  #grid = Object.assign(new DataGrid(), { label: "Requests" });
  #pause = button("Pause", () => this.pause());

  build() {
    return [
      paneHead(
        "Requests",
        this.#pause,
        button("Clear", () => {
          this.requests = [];
          this.show();
        }),
      ),
      h("div", { class: "filter-bar" }, this.#status, this.#search),
      this.#message,
      this.#grid,
      h("footer", { class: "pane-foot" }, this.#state),
    ];
  }

  start() {
    this.#grid.setColumns(COLUMNS);
    this.show();
    this.repeat(SECONDS, () => this.#poll());
  }

  pause() {
    this.#isPaused = !this.#isPaused;
    this.#pause.textContent = this.#isPaused ? "Go on" : "Pause";
  }

  async #poll() {
    if (this.#isPaused) return;
    try {
      const { requests, last } = await connection.json("GET", "requests", {
        query: { after: this.#after || undefined, limit: BATCH },
        signal: this.signal,
      });
      this.#message.replaceChildren();
      // A server that was started again counts from the beginning, and so does another one.
      if (last < this.#after) this.#after = 0;
      if (!requests.length) return;
      this.#after = Math.max(...requests.map((/** @type {any} */ request) => request.id));
      const known = new Set(this.requests.map(({ requestId }) => requestId));
      this.requests = requests
        .filter((/** @type {any} */ request) => !known.has(request.requestId))
        .sort((/** @type {any} */ a, /** @type {any} */ b) => b.id - a.id)
        .concat(this.requests)
        .slice(0, KEPT);
      this.show();
    } catch (error) {
      if (!isCancelled(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  show() {
    const [status, text] = [this.#status.value, this.#search.value.toLowerCase()];
    const isWanted = (/** @type {any} */ request) =>
      String(request.status).startsWith(status) &&
      [request.account, request.table, request.operation, request.error, request.requestId].some((part) =>
        (part ?? "").toLowerCase().includes(text),
      );
    const shown = this.requests.filter(isWanted);
    this.#grid.hidden = shown.length === 0;
    this.#grid.rows = shown;
    this.#state.textContent = `${count(shown.length)} of the last ${count(this.requests.length)} requests`;
    if (shown.length) this.#message.replaceChildren();
    else
      this.#message.replaceChildren(
        this.requests.length
          ? empty("Nothing matches", "No request of the last ones matches.")
          : empty("No requests yet", "Requests of clients and of this console appear here as they are answered."),
      );
  }
}

customElements.define("requests-pane", RequestsPane);
