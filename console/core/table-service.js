// The Table service as the console uses it: one account, by the Table protocol.

import { entityAddress, segment, tableAddress } from "./address.js";
import { batchBody, readBatch } from "./batch.js";
import { connection } from "./connection.js";
import { entityOf, jsonOfEntity, jsonOfProperties } from "./entity.js";
import { RequestError } from "./errors.js";
import { parseJson } from "./json.js";

const JSON_TYPE = "application/json";
const FULL = "application/json;odata=fullmetadata";
const BARE = "application/json;odata=nometadata";
const VERSION = "2019-02-02";

export class TableService {
  /** @param {string} account */
  constructor(account) {
    this.account = account;
  }

  /** @param {string} method @param {string} path @param {Options} [options] */
  async send(method, path, options = {}) {
    const headers = { "x-ms-version": VERSION, accept: FULL, ...options.headers };
    return connection.send(method, `service/${segment(this.account)}/${path}`, { ...options, headers });
  }

  /** The names of a page of tables. @param {Token | null} token @param {AbortSignal} [signal] */
  async tables(token, signal) {
    const response = await this.send("GET", "Tables", { query: { ...token }, headers: { accept: BARE }, signal });
    const found = await response.json();
    const names = found.value.map((/** @type {{ TableName: string }} */ table) => table.TableName);
    return { names: /** @type {string[]} */ (names), next: continuation(response) };
  }

  /** @param {string} table */
  async createTable(table) {
    const headers = { "content-type": JSON_TYPE, prefer: "return-no-content" };
    await this.send("POST", "Tables", { body: JSON.stringify({ TableName: table }), headers });
  }

  /** @param {string} table @param {AbortSignal} [signal] */
  async deleteTable(table, signal) {
    await this.send("DELETE", tableAddress(table), { signal });
  }

  /** A page of entities. @param {string} table @param {Query} query @param {Token | null} token @param {AbortSignal} [signal] @returns {Promise<Page>} */
  async query(table, query, token, signal) {
    const { filter, order, select, top } = query;
    const options = { $filter: filter, $orderby: order, $select: select, $top: top, ...token };
    const response = await this.send("GET", `${segment(table)}()`, { query: options, signal });
    const document = /** @type {Map<string, any>} */ (parseJson(await response.text()));
    return { entities: document.get("value").map(entityOf), next: continuation(response) };
  }

  /** How many entities a page has, without reading them. @param {string} table @param {Query} query @param {Token | null} token @param {AbortSignal} [signal] */
  async countPage(table, query, token, signal) {
    const options = { $filter: query.filter, $select: "PartitionKey", ...token };
    const response = await this.send("GET", `${segment(table)}()`, {
      query: options,
      headers: { accept: BARE },
      signal,
    });
    const found = await response.json();
    return { count: /** @type {number} */ (found.value.length), next: continuation(response) };
  }

  /** @param {string} table @param {string} partitionKey @param {string} rowKey @returns {Promise<Entity | null>} null if there is none */
  async get(table, partitionKey, rowKey) {
    try {
      const response = await this.send("GET", entityAddress(table, partitionKey, rowKey));
      return entityOf(/** @type {Map<string, any>} */ (parseJson(await response.text())));
    } catch (error) {
      if (error instanceof RequestError && error.code === "ResourceNotFound") return null;
      throw error;
    }
  }

  /** @param {string} table @param {Entity} entity */
  async insert(table, entity) {
    const headers = { "content-type": JSON_TYPE, prefer: "return-no-content" };
    await this.send("POST", segment(table), { body: jsonOfEntity(entity), headers });
  }

  /** Replaces an entity if its ETag is still this one. @param {string} table @param {Entity} entity */
  replace(table, entity) {
    return this.#change("PUT", table, entity, jsonOfEntity(entity));
  }

  /** Merges properties into an entity if its ETag is still this one. @param {string} table @param {Entity} entity */
  merge(table, entity) {
    return this.#change("PATCH", table, entity, `{${jsonOfProperties(entity.properties).join(",")}}`);
  }

  /** @param {string} method @param {string} table @param {Entity} entity @param {string} body */
  async #change(method, table, entity, body) {
    const headers = { "content-type": JSON_TYPE, "if-match": entity.etag };
    await this.send(method, entityAddress(table, entity.partitionKey, entity.rowKey), { body, headers });
  }

  /** Deletes an entity if its ETag is still this one. @param {string} table @param {Entity} entity @param {AbortSignal} [signal] */
  async delete(table, entity, signal) {
    const path = entityAddress(table, entity.partitionKey, entity.rowKey);
    await this.send("DELETE", path, { headers: { "if-match": entity.etag }, signal });
  }

  /** Runs a change set; all or nothing. @param {Write[]} writes of one partition, at most 100 @param {AbortSignal} [signal] */
  async batch(writes, signal) {
    const { type, body } = batchBody(this.account, writes);
    const response = await this.send("POST", "$batch", {
      body,
      headers: { "content-type": type, accept: JSON_TYPE },
      signal,
    });
    readBatch(await response.text(), writes.length);
  }

  /** An XML document: policies or service properties. @param {string} path @param {Record<string, string>} query */
  async readXml(path, query) {
    const response = await this.send("GET", path, { query, headers: { accept: "application/xml" } });
    return response.text();
  }

  /** @param {string} path @param {Record<string, string>} query @param {string} body */
  async writeXml(path, query, body) {
    await this.send("PUT", path, {
      query,
      body,
      headers: { "content-type": "application/xml", accept: "application/xml" },
    });
  }
}

/** @param {Response} response @returns {Token | null} */
function continuation(response) {
  /** @type {Token} */
  const token = {};
  for (const name of ["NextPartitionKey", "NextRowKey", "NextTableName"]) {
    const value = response.headers.get(`x-ms-continuation-${name}`);
    if (value !== null) token[name] = value;
  }
  return Object.keys(token).length ? token : null;
}
