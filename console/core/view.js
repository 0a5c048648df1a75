// The base of our elements: built when they enter the page, and stopped when they leave it.

export class View extends HTMLElement {
  /** Ends what the element waits for when it leaves the page. */
  leaving = new AbortController();

  /** @returns {AbortSignal} */
  get signal() {
    return this.leaving.signal;
  }

  connectedCallback() {
    if (this.leaving.signal.aborted) this.leaving = new AbortController();
    this.replaceChildren(...this.build());
    this.start();
  }

  disconnectedCallback() {
    this.leaving.abort();
  }

  /** What the element contains. @returns {(Node | string)[]} */
  build() {
    return [];
  }

  /** Runs once the element is in the page: loads what it shows. */
  start() {}

  /**
   * Calls `work` now and then again `seconds` after it ended, while the element is in the page and the page is visible.
   * @param {number} seconds
   * @param {() => Promise<void>} work
   */
  async repeat(seconds, work) {
    const { signal } = this;
    while (!signal.aborted) {
      if (!document.hidden) await work();
      await pause(seconds, signal);
    }
  }
}

/** @param {number} seconds @param {AbortSignal} signal @returns {Promise<void>} */
export function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
