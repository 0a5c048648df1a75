// Writes many entities: change sets of one partition each, a few at a time, never two of one partition at once.

import { isCancelled, inWords, LostError, RequestError } from "./errors.js";
import { jsonOfEntity } from "./entity.js";

const MAX_WRITES = 100;
/** Bytes of a change set may be 4 MiB; a character is up to three of them. */
const MAX_CHARACTERS = 1024 * 1024;
const PARALLEL = 4;

export class Writer {
  /** @type {Placed[]} */
  #open = [];
  #characters = 0;
  /** @type {Set<string>} */
  #rows = new Set();
  /** Partitions with a change set under way. @type {Map<string, Promise<void>>} */
  #running = new Map();
  /** @type {unknown} */
  #fault = null;

  /**
   * @param {TableService} service
   * @param {Job} job
   * @param {(error: RequestError) => boolean} isSkipped whether an error only means that nothing was to be done
   */
  constructor(service, job, isSkipped) {
    this.service = service;
    this.job = job;
    this.isSkipped = isSkipped;
  }

  /** @param {Placed} write */
  async add(write) {
    const size = write.kind === "delete" ? 0 : jsonOfEntity(write.entity).length;
    const isOther = this.#open.length && this.#open[0].entity.partitionKey !== write.entity.partitionKey;
    const isFull = this.#open.length >= MAX_WRITES || this.#characters + size > MAX_CHARACTERS;
    if (isOther || isFull || this.#rows.has(write.entity.rowKey)) await this.#send();
    this.#open.push(write);
    this.#rows.add(write.entity.rowKey);
    this.#characters += size;
  }

  /** Sends what is left, and waits for all. */
  async finish() {
    await this.#send();
    await this.settled();
    if (this.#fault) throw this.#fault;
  }

  /** Waits for what is under way. */
  async settled() {
    await Promise.all(this.#running.values());
  }

  async #send() {
    const writes = this.#open;
    if (!writes.length) return;
    this.#open = [];
    this.#rows = new Set();
    this.#characters = 0;
    const partition = writes[0].entity.partitionKey;
    await this.#running.get(partition);
    while (this.#running.size >= PARALLEL) await Promise.race(this.#running.values());
    if (this.#fault) throw this.#fault;
    const running = this.#write(writes).catch((error) => void (this.#fault ??= error));
    this.#running.set(
      partition,
      running.finally(() => this.#running.delete(partition)),
    );
  }

  /** Writes a change set, or one after the other if it is refused. @param {Placed[]} writes */
  async #write(writes) {
    try {
      await this.service.batch(writes, this.job.signal);
      this.job.advance(writes.length);
    } catch (error) {
      if (isCancelled(error) || error instanceof LostError) throw error;
      if (writes.length === 1) return this.#failed(writes[0], error);
      for (const write of writes) await this.#write([write]);
    }
  }

  /** @param {Placed} write @param {unknown} error */
  #failed(write, error) {
    if (error instanceof RequestError && this.isSkipped(error)) this.job.skip(1);
    else this.job.fail(`${write.place}: ${inWords(error)}`);
  }
}
