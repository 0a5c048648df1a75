// Entity group transactions: all or nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TableTransaction } from "@azure/data-tables";
import { all, refusal, serverForThisFile, withTable, written } from "./rowhouse.js";

const server = serverForThisFile();
const entity = (rowKey, more = {}) => ({ partitionKey: "p", rowKey, ...more });
const onTable = (name, body) => test(name, () => withTable(server, body));
const rows = async (table) => (await all(table.listEntities())).map((e) => e.rowKey);

/** Submits what must fail, and sees that nothing changed. */
async function refused(table, actions) {
  const before = await all(table.listEntities());
  const outcome = await refusal(() => table.submitTransaction(actions));
  assert.deepEqual(await all(table.listEntities()), before);
  return outcome;
}

onTable("every kind of action at once", async (table) => {
  for (const row of ["delete", "merge", "replace", "upmerge", "upreplace"]) {
    await table.createEntity(entity(row, { old: 1 }));
  }
  const transaction = new TableTransaction();
  transaction.createEntity(entity("create", { text: "it's 100% <&> ü" }));
  transaction.deleteEntity("p", "delete");
  transaction.updateEntity(entity("merge", { now: 1 }));
  transaction.updateEntity(entity("replace", { now: 1 }), "Replace");
  transaction.upsertEntity(entity("upmerge", { now: 1 }));
  transaction.upsertEntity(entity("upreplace", { now: 1 }), "Replace");
  transaction.upsertEntity(entity("fresh", { big: 5n, at: new Date(0) }));
  const result = await table.submitTransaction(transaction.actions);
  assert.equal(result.status, 202);
  assert.deepEqual(result.subResponses.map((r) => r.status), [204, 204, 204, 204, 204, 204, 204]);
  const found = Object.fromEntries((await all(table.listEntities())).map((e) => [e.rowKey, e]));
  assert.equal(found.create.etag, result.getResponseForEntity("create").etag);
  assert.deepEqual(
    Object.values(found).map(written),
    [
      entity("create", { text: "it's 100% <&> ü" }),
      entity("fresh", { big: 5n, at: new Date(0) }),
      entity("merge", { old: 1, now: 1 }),
      entity("replace", { now: 1 }),
      entity("upmerge", { old: 1, now: 1 }),
      entity("upreplace", { now: 1 }),
    ],
  );
});

onTable("a hundred are the most", async (table) => {
  const actions = (count) => Array.from({ length: count }, (_, n) => ["upsert", entity(String(n).padStart(3, "0"))]);
  assert.equal((await table.submitTransaction(actions(100))).subResponses.length, 100);
  assert.deepEqual(await refused(table, actions(101)), [400, "InvalidInput"]);
});

onTable("failures undo everything", async (table) => {
  const { etag } = await table.createEntity(entity("taken", { a: 1 }));
  await table.updateEntity(entity("taken", { a: 2 }));
  assert.deepEqual(await refused(table, [["create", entity("a")], ["create", entity("taken")]]), [409, "EntityAlreadyExists"]);
  assert.deepEqual(await refused(table, [["upsert", entity("a")], ["update", entity("missing")]]), [404, "ResourceNotFound"]);
  assert.deepEqual(await refused(table, [["create", entity("a")], ["delete", entity("missing")]]), [404, "ResourceNotFound"]);
  assert.deepEqual(
    await refused(table, [["create", entity("a")], ["update", entity("taken"), "Merge", { etag }]]),
    [412, "UpdateConditionNotSatisfied"],
  );
  assert.deepEqual(await refused(table, [["create", entity("a")], ["upsert", entity("a")]]), [400, "InvalidDuplicateRow"]);
  assert.deepEqual(
    await refused(table, [["create", entity("a")], ["create", entity("b", { s: "x".repeat(32769) })]]),
    [400, "PropertyValueTooLarge"],
  );
});

onTable("the index of the failing action stands in the message", async (table) => {
  await table.createEntity(entity("taken"));
  await assert.rejects(() => table.submitTransaction([["create", entity("a")], ["create", entity("taken")]]), /^RestError: 1:/);
});

onTable("two partitions are refused by the SDK", async (table) => {
  await assert.rejects(
    () => table.submitTransaction([["create", entity("a")], ["create", { partitionKey: "q", rowKey: "a" }]]),
    /same partitionKey/,
  );
  assert.deepEqual(await rows(table), []);
});

onTable("parallel transactions never mix", async (table) => {
  const batch = (writer) => Array.from({ length: 20 }, (_, n) => ["upsert", entity(String(n).padStart(2, "0"), { writer })]);
  await Promise.all(Array.from({ length: 10 }, (_, writer) => table.submitTransaction(batch(writer))));
  const writers = new Set((await all(table.listEntities())).map((e) => e.writer));
  assert.equal(writers.size, 1);
});
