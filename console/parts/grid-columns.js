// Where the columns of a grid are.

export const SELECT_WIDTH = 36;
const WIDTH = 160;
const MIN_WIDTH = 48;
const MAX_WIDTH = 1200;

export class GridColumns {
  /** The left edges, and at the end the right one. @type {number[]} */
  #edges = [];

  /** @param {Column[]} list @param {Record<string, number>} widths @param {boolean} [isSelectable] */
  constructor(list, widths, isSelectable = false) {
    this.list = list;
    this.widths = { ...widths };
    this.start = isSelectable ? SELECT_WIDTH : 0;
    this.#measure();
  }

  #measure() {
    this.#edges = [this.start];
    for (const column of this.list) {
      const width = Number(this.widths[column.id]) || column.width || WIDTH;
      this.#edges.push(this.#edges[this.#edges.length - 1] + width);
    }
  }

  get total() {
    return this.#edges[this.#edges.length - 1];
  }

  /** @param {number} index */
  left(index) {
    return this.#edges[index] ?? 0;
  }

  /** @param {number} index */
  width(index) {
    return (this.#edges[index + 1] ?? 0) - this.left(index);
  }

  /** @param {number} index @param {number} width */
  resize(index, width) {
    this.widths[this.list[index].id] = Math.round(Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, width)));
    this.#measure();
  }

  /** The columns between two positions. @param {number} from @param {number} to @returns {number[]} */
  between(from, to) {
    let index = Math.max(0, this.#firstAfter(from) - 1);
    const found = [];
    for (; index < this.list.length && this.#edges[index] < to; index += 1) found.push(index);
    return found;
  }

  /** The first edge beyond a position, by bisection. @param {number} position */
  #firstAfter(position) {
    let [low, high] = [0, this.#edges.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#edges[middle] > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
