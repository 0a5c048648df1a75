// Long work: it shows progress and can be cancelled.

/** Event: `progress`. */
export class Job extends EventTarget {
  #cancel = new AbortController();
  done = 0;
  /** How many there are in all, if known. */
  total = 0;
  skipped = 0;
  /** @type {string[]} */
  problems = [];
  /** How many problems there were, of which only the first are kept. */
  failed = 0;

  get signal() {
    return this.#cancel.signal;
  }

  cancel() {
    this.#cancel.abort();
  }

  /** @param {number} more */
  advance(more) {
    this.done += more;
    this.dispatchEvent(new Event("progress"));
  }

  /** @param {number} more */
  skip(more) {
    this.skipped += more;
    this.dispatchEvent(new Event("progress"));
  }

  /** @param {string} problem */
  fail(problem) {
    this.failed += 1;
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(problem);
    this.dispatchEvent(new Event("progress"));
  }
}

const MAX_PROBLEMS = 100;
