// By which columns of a table the server sorts all entities: by an index, and by PartitionKey. The others are sorted
// in the browser, as far as they are loaded.

import { connection } from "./connection.js";
import { session } from "./session.js";

export class Orders {
  /** The indexes of each property. @type {Map<string, PropertyIndex[]>} */
  #indexes = new Map();
  #isExtended = false;

  /** @param {string} account @param {string} table */
  constructor(account, table) {
    this.account = account;
    this.table = table;
  }

  /**
   * Asks the server which indexes there are. Without an answer there are none; who ends the question keeps those that
   * were known.
   * @param {AbortSignal} signal
   */
  async load(signal) {
    const { account, table } = this;
    this.#isExtended = session.accounts.some(({ name, hasExtendedQueries }) => name === account && hasExtendedQueries);
    /** @type {PropertyIndex[]} */
    const found = await connection.json("GET", "indexes", { query: { account, table }, signal }).catch(() => []);
    if (!signal.aborted) this.#indexes = Map.groupBy(found, ({ property }) => property);
  }

  /** Whether the server sorts by a column. @param {string} name */
  has(name) {
    return this.#isExtended && !this.#missing(name);
  }

  /** The order to ask the server for; none if the rows are sorted here. @param {Sorted | null} sorted */
  text(sorted) {
    if (!sorted || !this.has(sorted.id)) return "";
    const direction = sorted.isDown ? " desc" : "";
    return sorted.id === "PartitionKey" ? `PartitionKey${direction},RowKey${direction}` : `${sorted.id}${direction}`;
  }

  /** What sorting by a column sorts, and how the server would sort more. @param {string} name */
  words(name) {
    if (this.has(name)) return name === "PartitionKey" ? "all entities, by both keys" : "all entities, by the index";
    const queries = !this.#isExtended && `rowhouse account queries ${this.account} extended`;
    return `the loaded rows. For all entities: ${[queries, this.#missing(name)].filter(Boolean).join("; ")}`;
  }

  /** What the order of a column needs besides extended queries. @param {string} name @returns {string} */
  #missing(name) {
    if (name === "PartitionKey") return "";
    if (name === "RowKey") return "sort by PartitionKey";
    const indexes = this.#indexes.get(name) ?? [];
    if (indexes.length > 1) return "one index of this property, not several";
    if (indexes.length === 1) return indexes[0].state === "ready" ? "" : "the index, when it is complete";
    return `rowhouse index create ${this.table} ${name} --account ${this.account}`;
  }
}
