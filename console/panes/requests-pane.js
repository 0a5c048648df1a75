// The requests that the server answers, as they come.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { View } from "../core/view.js";
import { button, copyable, count, empty, errorBox, input, paneHead, select } from "../parts/controls.js";
import { DataGrid } from "../parts/data-grid.js";
import { Modal } from "../parts/modal.js";

/** @type {[string, string][]} */
const STATUSES = [
  ["", "Any status"],
  ["2", "2xx: done"],
  ["3", "3xx"],
  ["4", "4xx: refused"],
  ["5", "5xx: failed"],
];
/** @type {[string, string][]} */
const SENDERS = [
  ["", "From all senders"],
  ["client", "From clients"],
  ["operator", "From consoles and operators"],
];

/** @param {string} field @returns {(a: any, b: any) => number} */
const by = (field) => (a, b) => (a[field] < b[field] ? -1 : a[field] > b[field] ? 1 : 0);

/** @type {Column[]} */
const COLUMNS = [
  {
    id: "time",
    title: "Time",
    width: 120,
    text: (row) => row.time.slice(11, 23),
    style: () => "quiet",
    compare: by("id"),
  },
  {
    id: "status",
    title: "Status",
    width: 74,
    isNumber: true,
    text: (row) => String(row.status),
    style: (row) => `status-${String(row.status)[0]}`,
  },
  { id: "from", title: "From", width: 76, text: (row) => senderOf(row), style: () => "quiet" },
  { id: "operation", title: "Operation", width: 128, text: (row) => row.operation },
  { id: "table", title: "Table", width: 106, text: (row) => row.table ?? "" },
  {
    id: "took",
    title: "Took",
    hint: "ms",
    width: 88,
    isNumber: true,
    text: (row) => milliseconds(row.milliseconds),
    compare: by("milliseconds"),
  },
  { id: "error", title: "Error", width: 124, text: (row) => row.error ?? "" },
  { id: "reason", title: "Reason", width: 166, text: (row) => row.reason ?? "" },
  { id: "request", title: "Request ID", width: 130, text: (row) => row.requestId, style: () => "quiet" },
  { id: "account", title: "Account", width: 150, text: (row) => row.account ?? "" },
  {
    id: "store",
    title: "Database",
    hint: "ms",
    width: 130,
    isNumber: true,
    text: (row) => milliseconds(row.storeMilliseconds),
    compare: by("storeMilliseconds"),
  },
];

const KEPT = 2000;
const BATCH = 500;
const SECONDS = 1;

/** The console's own requests are those of an operator. @param {any} request */
const senderOf = ({ fromOperator }) => (fromOperator ? "operator" : "client");

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
  #sender = select(SENDERS, "", { "aria-label": "From", on: { change: () => this.show() } });
  #search = input({
    type: "search",
    placeholder: "Account, table, operation, error or request ID",
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
      h("div", { class: "filter-bar" }, this.#sender, this.#status, this.#search),
      this.#message,
      this.#grid,
      h("footer", { class: "pane-foot" }, this.#state),
    ];
  }

  start() {
    this.#grid.setColumns(COLUMNS);
    this.#grid.addEventListener("rowopen", (event) => showRequest(/** @type {CustomEvent} */ (event).detail));
    this.show();
    this.repeat(SECONDS, () => this.#poll());
  }

  pause() {
    this.#isPaused = !this.#isPaused;
    this.#pause.textContent = this.#isPaused ? "Resume" : "Pause";
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
      if (isShownHere(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  show() {
    const [status, sender, text] = [this.#status.value, this.#sender.value, this.#search.value.toLowerCase()];
    const isWanted = (/** @type {any} */ request) =>
      String(request.status).startsWith(status) &&
      senderOf(request).startsWith(sender) &&
      [request.account, request.table, request.operation, request.error, request.requestId].some((part) =>
        (part ?? "").toLowerCase().includes(text),
      );
    const shown = this.requests.filter(isWanted);
    this.#grid.hidden = shown.length === 0;
    this.#grid.rows = shown;
    this.#state.textContent = `${count(shown.length)} of the last ${count(this.requests.length)} requests${
      shown.length ? " · double click a request for its details" : ""
    }`;
    if (shown.length) this.#message.replaceChildren();
    else
      this.#message.replaceChildren(
        this.requests.length
          ? empty("Nothing matches", "None of the last requests matches.")
          : empty("No requests yet", "Requests of clients and of this console appear here once they are answered."),
      );
  }
}

/** Everything that is known of a request. @param {any} request */
function showRequest(request) {
  const facts = [
    ["Time", request.time],
    ["Status", [request.status, request.error].filter(Boolean).join(" ")],
    ["Reason", request.reason],
    ["Operation", request.operation],
    ["Account", request.account],
    ["Table", request.table],
    ["From", request.fromOperator ? "an operator, over the admin listener" : "a client"],
    ["Took", `${milliseconds(request.milliseconds)} ms, of which ${milliseconds(request.storeMilliseconds)} ms in the database`],
  ];
  const rows = facts
    .filter(([, text]) => text)
    .map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "mono" }, text)));
  const table = h("table", { class: "plain details" }, h("tbody", {}, rows));
  new Modal("Request", [table, copyable("Request ID", request.requestId)], { wide: true }).open();
}

customElements.define("requests-pane", RequestsPane);
