// Connects to real Rowhouse servers with the SDK, and looks at what it returns.

import assert from "node:assert/strict";
import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";
import * as base from "./server.js";

export { newKey, newName } from "./server.js";

// The SDK refuses http unless told so, and never trying again hides no failure.
export const OPTIONS = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

class Server extends base.Server {
  credential(key = 0) {
    return new AzureNamedKeyCredential(this.account, this.keys[key]);
  }

  service(credential = this.credential(), options = {}) {
    return new TableServiceClient(this.endpoint, credential, { ...OPTIONS, ...options });
  }

  table(name, credential = this.credential(), options = {}) {
    return new TableClient(this.endpoint, name, credential, { ...OPTIONS, ...options });
  }
}

/**
 * A server for the tests of one file, which start it and stop it.
 * @param settingsOf more settings, by the names of their variables
 */
export function serverForThisFile(settingsOf = () => ({})) {
  const server = new Server();
  server.settings = settingsOf(server);
  return base.serverForThisFile(server);
}

/** Makes a table, hands its client to the test, and deletes it. */
export async function withTable(server, test) {
  const table = server.table(base.newName());
  await table.createTable();
  try {
    await test(table);
  } finally {
    await table.deleteTable();
  }
}

export async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

/** The status and the service's code of the failure that `attempt` ends in. */
export async function refusal(attempt) {
  let error;
  try {
    await attempt();
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, "nothing was refused");
  return [error.statusCode, codeOf(error)];
}

/** The service's code, which the SDK keeps elsewhere for JSON than for XML. */
export function codeOf(error) {
  return error.code ?? error.details?.odataError?.code ?? error.details?.errorCode;
}

/** What of an entity its writer wrote. */
export function written(entity) {
  const { etag, timestamp, ...rest } = entity;
  delete rest["odata.metadata"];
  return rest;
}
