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
  orders = new TableClient(server.endpoint, newName(), server.credential(), { allowInsecureConnection: true });
  await orders.createTable();
});

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

const insert = (rowKey) => orders.createEntity({ partitionKey: "p", rowKey });

test("an answer is lost, and the repetition finds what was stored", async () => {
  await order({ operation: "InsertEntity", then: { drop: "after" } });
  await assert.rejects(orders.createEntity({ partitionKey: "p", rowKey: "1" }), { statusCode: 409 });
  assert.ok(await orders.getEntity("p", "1"));
  assert.deepEqual(await counted(), [2]);
});

test("what is repeated, and how often", async () => {
  await insert("stale");
  await insert("read");
  await order(
    { row: "busy", times: 9, then: { error: "ServerBusy" } },
    { row: "timeout", times: 9, then: { error: "OperationTimedOut" } },
    { row: "error", times: 9, then: { error: "InternalError" } },
    { row: "slow", operation: "InsertEntity", times: 9, then: { error: "RequestTimedOut" } },
    { row: "dropped", times: 9, then: { drop: "before" } },
    { row: "read", times: 9, then: { drop: "before" } },
    { row: "stale", operation: "MergeEntity", times: 9, then: { error: "UpdateConditionNotSatisfied" } },
    { row: "once", then: { error: "ServerBusy" } },
  );
  const results = await Promise.all(
    [
      ...["busy", "timeout", "error", "slow", "dropped"].map(insert),
      orders.getEntity("p", "read"),
      orders.updateEntity({ partitionKey: "p", rowKey: "stale" }),
      insert("once"),
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
  assert.ok(await orders.getEntity("p", "once"));
});
