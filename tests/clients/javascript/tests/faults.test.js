// Faults that a test orders, and what the SDK does about them by its own retry policy: what
// docs/how-to/test-suites.md says of both.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";
import { TableClient } from "@azure/data-tables";
import { newName, serverForThisFile } from "./rowhouse.js";

const server = serverForThisFile(() => ({ ROWHOUSE_ADMIN_LISTEN: "127.0.0.1:0", ROWHOUSE_TEST_MODE: "true" }));
let ADMIN;
let orders;

beforeEach(async () => {
  [, ADMIN] = /operators are answered at (http:\/\/\S+)/.exec(readFileSync(server.log, "utf8"));
  orders = await newTable();
});

/** A table, by a client with the SDK's own retry policy. */
async function newTable() {
  const options = { allowInsecureConnection: true };
  const table = new TableClient(server.endpoint, newName(), server.credential(), options);
  await table.createTable();
  return table;
}

async function order(...rules) {
  const answer = await fetch(`${ADMIN}/test/faults`, { method: "PUT", body: JSON.stringify(rules) });
  assert.ok(answer.ok, await answer.text());
}

async function counted() {
  const { rules } = await (await fetch(`${ADMIN}/test/faults`)).json();
  return rules.map(({ matched }) => matched);
}

/** How a call ended, and after how many milliseconds. */
async function ended(call) {
  const begun = performance.now();
  const outcome = await call.then(
    () => 200,
    (error) => error.statusCode ?? error.code,
  );
  return [outcome, performance.now() - begun];
}

const insert = (table) => table.createEntity({ partitionKey: "p", rowKey: "1" });

test("an answer is lost, and the repetition finds what was stored", async () => {
  await order({ operation: "InsertEntity", disconnect: "after" });
  await assert.rejects(orders.createEntity({ partitionKey: "p", rowKey: "1" }), { statusCode: 409 });
  assert.ok(await orders.getEntity("p", "1"));
  assert.deepEqual(await counted(), [2]);
});

test("short pages are followed", async () => {
  for (const rowKey of ["a", "b", "c"]) await orders.createEntity({ partitionKey: "p", rowKey });
  await order({ table: orders.tableName, page: 1, times: 9 });
  const pages = [];
  for await (const page of orders.listEntities().byPage()) pages.push(page.map(({ rowKey }) => rowKey));
  assert.deepEqual(pages, [["a"], ["b"], ["c"]]);
  assert.deepEqual(await counted(), [3]);
});

test("what is repeated, and how often", async () => {
  const tables = await Promise.all(Array.from({ length: 8 }, newTable));
  const [busy, timeout, error, slow, lost, read, stale, once] = tables;
  await insert(stale);
  await insert(read);
  await order(
    { table: busy.tableName, times: 9, error: "ServerBusy" },
    { table: timeout.tableName, times: 9, error: "OperationTimedOut" },
    { table: error.tableName, times: 9, error: "InternalError" },
    { table: slow.tableName, times: 9, error: "RequestTimedOut" },
    { table: lost.tableName, times: 9, disconnect: "before" },
    { table: read.tableName, times: 9, disconnect: "before" },
    { table: stale.tableName, operation: "MergeEntity", times: 9, error: "UpdateConditionNotSatisfied" },
    { table: once.tableName, error: "ServerBusy" },
  );
  const results = await Promise.all(
    [
      ...[busy, timeout, error, slow, lost].map(insert),
      read.getEntity("p", "1"),
      stale.updateEntity({ partitionKey: "p", rowKey: "1" }),
      insert(once),
    ].map(ended),
  );
  assert.deepEqual(
    results.map(([outcome]) => outcome),
    [503, 500, 500, 408, "ECONNRESET", "ECONNRESET", 412, 200],
  );
  assert.deepEqual(await counted(), [4, 4, 4, 4, 4, 4, 1, 2]);
  // At least half a second, one and two; a busy server says when. Timers may be early by a millisecond.
  const atLeast = [3000, 3500, 3500, 3500, 3500, 3500, 0, 1000];
  for (const [at, [outcome, milliseconds]] of results.entries())
    assert.ok(milliseconds >= atLeast[at] - 10, `${outcome} after ${milliseconds} ms`);
  assert.ok(await once.getEntity("p", "1"));
});
