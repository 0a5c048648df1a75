// Pages of a query: forward by continuation token, back by the tokens that were used.

const MAX_TOP = 1000;

export class Pager {
  /** Where each page begins. @type {(Token | null)[]} */
  #starts = [null];
  /** The number of the page, from 0. */
  page = 0;
  /** @type {Token | null} */
  #next = null;
  /** @type {Entity[]} */
  rows = [];

  /** @param {TableService} service @param {string} table @param {{ filter: string, order: string }} query @param {number} size rows of a page */
  constructor(service, table, { filter, order }, size) {
    this.service = service;
    this.table = table;
    this.filter = filter;
    this.order = order;
    this.size = size;
  }

  /** How many rows come before this page. */
  get before() {
    return this.page * this.size;
  }

  get hasBack() {
    return this.page > 0;
  }

  get hasNext() {
    return this.#next !== null;
  }

  /** Loads a page: the one before (-1), this one again (0), or the next (1). @param {-1 | 0 | 1} step @param {AbortSignal} signal @param {(rows: number) => void} progress */
  async load(step, signal, progress) {
    if (step === 1 && this.#next) this.#starts[this.page + 1] = this.#next;
    const page = Math.max(0, this.page + step);
    let token = this.#starts[page];
    /** @type {Entity[]} */
    const rows = [];
    do {
      const top = Math.min(MAX_TOP, this.size - rows.length);
      const query = { filter: this.filter, order: this.order, top };
      const found = await this.service.query(this.table, query, token, signal);
      for (const entity of found.entities) rows.push(entity);
      token = found.next;
      progress(rows.length);
    } while (token && rows.length < this.size);
    [this.page, this.rows, this.#next] = [page, rows, token];
  }
}
