// Pictures of up to an hour: rate, latency, errors, time in the database, and sizes of tables; and the nodes of a cluster.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { ClusterNodes } from "../parts/cluster-nodes.js";
import { bytes, count, empty, errorBox, paneHead } from "../parts/controls.js";
import { LineChart } from "../parts/line-chart.js";

const SECONDS = 10;
/** The largest tables are drawn; more lines could not be told apart. */
const DRAWN = 5;

/** Three digits tell the steps of an axis apart, however small they are. @param {number} value */
const rate = (value) =>
  value < 1000 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : count(Math.round(value));
const milliseconds = (/** @type {number} */ value) => (value === 0 ? "0" : `${rate(value)} ms`);

class ActivityPane extends View {
  #message = h("div", { class: "message" });
  #span = h("span", { class: "quiet" });
  #charts = {
    rate: new LineChart(),
    latency: new LineChart(),
    errors: new LineChart(),
    store: new LineChart(),
    sizes: new LineChart(),
  };
  #pictures = h("div", { class: "pictures" }, ...Object.values(this.#charts));

  build() {
    return [
      paneHead("Activity", this.#span),
      this.#message,
      this.#pictures,
      new ClusterNodes(),
    ];
  }

  start() {
    this.repeat(SECONDS, () => this.#poll());
  }

  async #poll() {
    const { signal } = this;
    try {
      // The server measures tables when somebody asks.
      if (session.account) await connection.json("GET", "tables", { query: { account: session.account }, signal });
      const history = await connection.json("GET", "history", { signal });
      this.#show(history.points, history.secondsPerPoint, history.tables);
      this.#message.replaceChildren();
    } catch (error) {
      if (isShownHere(error)) this.#message.replaceChildren(errorBox(error));
    }
  }

  /** @param {Point[]} points @param {number} seconds @param {TableHistory[]} tables */
  #show(points, seconds, tables) {
    this.#pictures.hidden = points.length === 0;
    if (!points.length)
      return this.#message.replaceChildren(
        empty("Nothing measured yet", `The first point appears after ${seconds} seconds.`),
      );
    const times = points.map(({ time }) => Date.parse(time));
    this.#span.textContent = `${spanInWords((times[times.length - 1] - times[0]) / 1000 + seconds)} of this server`;
    const series = (/** @type {string} */ name, /** @type {(point: Point) => number | null} */ value) => ({
      name,
      values: points.map(value),
    });
    this.#charts.rate.show({
      title: "Requests per second",
      times,
      format: rate,
      series: [series("all", (point) => point.requests / seconds)],
    });
    this.#charts.latency.show({
      title: "Latency",
      times,
      format: milliseconds,
      series: [series("p99", ({ p99 }) => p99), series("median", ({ p50 }) => p50)],
    });
    this.#charts.errors.show({
      title: "Errors per second",
      times,
      format: rate,
      series: [
        series("5xx", ({ errors }) => errors.server / seconds),
        series("4xx", ({ errors }) => errors.client / seconds),
      ],
    });
    this.#charts.store.show({
      title: "Database time per request",
      times,
      format: milliseconds,
      series: [series("mean", ({ storeMilliseconds }) => storeMilliseconds)],
    });
    this.#charts.sizes.show(sizesOf(tables));
  }
}

/** How long the pictures go back. @param {number} seconds */
function spanInWords(seconds) {
  const minutes = Math.round(seconds / 60);
  if (minutes >= 60) return "The last hour";
  if (minutes > 1) return `The last ${minutes} minutes`;
  return `The last ${Math.round(seconds)} seconds`;
}

/** @param {TableHistory[]} tables @returns {Picture} */
function sizesOf(tables) {
  const last = (/** @type {TableHistory} */ table) => table.points[table.points.length - 1]?.bytes ?? 0;
  const drawn = tables
    .filter((table) => table.account === session.account && last(table) > 0)
    .sort((a, b) => last(b) - last(a))
    .slice(0, DRAWN);
  const times = [...new Set(drawn.flatMap(({ points }) => points.map(({ time }) => Date.parse(time))))].sort(
    (a, b) => a - b,
  );
  const series = drawn.map(({ table, points }) => ({ name: table, values: valuesAt(times, points) }));
  return { title: `Largest tables of ${session.account}`, times, format: bytes, base: 1024, series };
}

/** The size at each time, which holds until the next one is measured. @param {number[]} times @param {TableHistory["points"]} points */
function valuesAt(times, points) {
  const known = new Map(points.map(({ time, bytes }) => [Date.parse(time), bytes]));
  /** @type {number | null} */
  let value = null;
  return times.map((time) => (value = known.get(time) ?? value));
}

customElements.define("activity-pane", ActivityPane);
