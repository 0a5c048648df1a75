// Connects to real Rowhouse servers with the retired SDK, and looks at what it returns.

import assert from "node:assert/strict";
import { test } from "node:test";
import azure from "azure-storage";
import * as base from "../../javascript/tests/server.js";

export { newKey, newName } from "../../javascript/tests/server.js";

/** The SDK's makers of typed values. */
export const of = azure.TableUtilities.entityGenerator;

class Server extends base.Server {
  get hosts() {
    return { primaryHost: this.endpoint, secondaryHost: `${this.endpoint}-secondary` };
  }

  service(key = this.keys[0]) {
    return azure.createTableService(this.account, key, this.hosts);
  }

  /** A client that only has a signature. */
  holder(signature) {
    return azure.createTableServiceWithSas(this.hosts, signature);
  }
}

/** A server for the tests of one file, which start it and stop it. */
export function serverForThisFile() {
  return base.serverForThisFile(new Server());
}

/** A test that gets a table, and a client whose methods are given it and return promises. */
export function onTable(server, name, body) {
  test(name, async () => {
    const table = base.newName();
    const service = server.service();
    await call(service, "createTable", table);
    try {
      await body((method, ...rest) => call(service, method, table, ...rest), table);
    } finally {
      await call(service, "deleteTable", table);
    }
  });
}

/** Calls a method, which takes a callback, and waits for its result. */
export function call(client, method, ...rest) {
  return new Promise((resolve, reject) => {
    client[method](...rest, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

/** The status and the service's code of the failure that the call ends in. */
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.statusCode, error.code];
  }
  assert.fail("nothing was refused");
}

export function entity(rowKey, more = {}) {
  return { PartitionKey: of.String("p"), RowKey: of.String(rowKey), ...more };
}

/** What of an entity its writer wrote, without the keys and types. */
export function written(found) {
  const { PartitionKey, RowKey, Timestamp, ".metadata": metadata, ...rest } = found;
  return Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, value._]));
}

export const rows = (page) => page.entries.map((found) => found.RowKey._);
