// A picture of figures over time, drawn with elements of SVG.

import { h, svg } from "../core/dom.js";
import { View } from "../core/view.js";

const HEIGHT = 150;
/** Where lines are equal, those below show through the gaps of those above. */
const DASHES = ["none", "7 5", "2 4", "12 4 2 4", "4 8"];
const MARGIN = { top: 8, right: 2, bottom: 20, left: 54 };

export class LineChart extends View {
  /** @type {Picture} */
  picture = { title: "", times: [], series: [], format: String };
  #caption = h("figcaption", {});
  #drawing = svg("svg", { role: "img" });

  build() {
    return [h("figure", {}, this.#caption, this.#drawing)];
  }

  start() {
    const watcher = new ResizeObserver(() => this.#draw());
    watcher.observe(this);
    this.signal.addEventListener("abort", () => watcher.disconnect());
  }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    if (this.isConnected) this.#draw();
  }

  #draw() {
    const { title, series, format } = this.picture;
    const now = series.map(({ name, values }) => ({ name, value: values.findLast((value) => value !== null) ?? null }));
    this.#caption.replaceChildren(
      h("h2", {}, title),
      ...now.map(({ name, value }, index) =>
        h("span", { class: `legend series-${index % 5}` }, name, " ", h("b", {}, value === null ? "–" : format(value))),
      ),
    );
    this.#drawing.setAttribute(
      "aria-label",
      `${title}, now: ${now.map(({ name, value }) => `${name} ${value === null ? "none" : format(value)}`).join(", ")}`,
    );
    const width = Math.max(200, this.#drawing.clientWidth);
    this.#drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#drawing.replaceChildren(
      ...this.#axes(width),
      ...series.flatMap((one, index) => this.#line(one, index, width)),
    );
  }

  get #top() {
    const highest = this.picture.series.reduce(
      (most, { values }) => values.reduce((top, value) => Math.max(top ?? 0, value ?? 0), most) ?? 0,
      0,
    );
    const { base = 1 } = this.picture;
    const unit = base > 1 && highest > 0 ? base ** Math.max(0, Math.floor(Math.log(highest) / Math.log(base))) : 1;
    return unit * niceAbove(highest / unit);
  }

  /** @param {number} width */
  #axes(width) {
    const { times, format } = this.picture;
    const lines = [0, 0.5, 1].flatMap((share) => {
      const y = this.#y(this.#top * share);
      return [
        svg("line", { class: "chart-axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }),
        svg(
          "text",
          { class: "chart-text", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" },
          format(this.#top * share),
        ),
      ];
    });
    if (times.length < 2) return lines;
    const ends = [
      [0, "start"],
      [times.length - 1, "end"],
    ];
    return [
      ...lines,
      ...ends.map(([index, anchor]) =>
        svg(
          "text",
          { class: "chart-text", x: this.#x(Number(index), width), y: HEIGHT - 4, "text-anchor": anchor },
          clock(times[Number(index)]),
        ),
      ),
    ];
  }

  /** @param {Series} series @param {number} index @param {number} width */
  #line({ values }, index, width) {
    const group = svg("g", { class: `series-${index % 5}` });
    for (const run of runsOf(values)) {
      const points = run.map((at) => `${this.#x(at, width).toFixed(1)},${this.#y(values[at] ?? 0).toFixed(1)}`);
      // A single point is drawn as a short line.
      if (points.length === 1) points.push(`${(this.#x(run[0], width) + 2).toFixed(1)},${points[0].split(",")[1]}`);
      const [first, last] = [points[0].split(",")[0], points[points.length - 1].split(",")[0]];
      if (index === 0)
        group.append(
          svg("path", { class: "chart-area", d: `M${first},${this.#y(0)}L${points.join("L")}L${last},${this.#y(0)}Z` }),
        );
      group.append(svg("path", { class: "chart-line", d: `M${points.join("L")}`, "stroke-dasharray": DASHES[index % 5] }));
    }
    return [group];
  }

  /** @param {number} index @param {number} width */
  #x(index, width) {
    const { times } = this.picture;
    const [first, last] = [times[0], times[times.length - 1]];
    const share = last > first ? (times[index] - first) / (last - first) : 1;
    return MARGIN.left + share * (width - MARGIN.left - MARGIN.right);
  }

  /** @param {number} value */
  #y(value) {
    return MARGIN.top + (1 - value / this.#top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }
}

/** The stretches of a series without gaps. @param {(number | null)[]} values @returns {number[][]} */
function runsOf(values) {
  /** @type {number[][]} */
  const runs = [];
  values.forEach((value, index) => {
    if (value === null) return;
    if (index > 0 && values[index - 1] !== null) runs[runs.length - 1].push(index);
    else runs.push([index]);
  });
  return runs;
}

/** The next of 1, 2, 5, 10, … above a value. @param {number} value */
function niceAbove(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10);
}

/** @param {number} time */
const clock = (time) => new Date(time).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

customElements.define("line-chart", LineChart);
