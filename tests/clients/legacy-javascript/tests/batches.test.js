// Entity group transactions: all or nothing.

import assert from "node:assert/strict";
import azure from "azure-storage";
import { entity, of, onTable, refusal, rows, serverForThisFile, written } from "./storage.js";

const server = serverForThisFile();

function batchOf(...operations) {
  const batch = new azure.TableBatch();
  for (const [method, ...rest] of operations) batch[method](...rest);
  return batch;
}

/** Executes what must fail, and sees that nothing changed. */
async function refused(table, ...operations) {
  const before = rows(await table("queryEntities", null, null));
  let failure;
  await table("executeBatch", batchOf(...operations)).catch((error) => (failure = error));
  assert.ok(failure, "nothing was refused");
  assert.deepEqual(rows(await table("queryEntities", null, null)), before);
  // The index of the operation stands before the message.
  return [failure.code, Number.parseInt(/^(\d+):/.exec(failure.message)?.[1], 10)];
}

onTable(server, "every kind of operation at once", async (table) => {
  for (const row of ["delete", "merge", "replace", "upmerge", "upreplace"]) {
    await table("insertEntity", entity(row, { old: of.Int32(1) }));
  }
  const now = { now: of.String("it's 100% <&> ü") };
  const results = await table("executeBatch", batchOf(
    ["insertEntity", entity("insert", now)],
    ["insertEntity", entity("echo", { ...now, big: of.Int64("5") }), { echoContent: true }],
    ["deleteEntity", entity("delete")],
    ["mergeEntity", entity("merge", now)],
    ["replaceEntity", entity("replace", now)],
    ["insertOrMergeEntity", entity("upmerge", now)],
    ["insertOrReplaceEntity", entity("upreplace", now)],
  ));
  assert.deepEqual(results.map((result) => result.response.statusCode), [204, 201, 204, 204, 204, 204, 204]);
  assert.equal(results[1].entity.big._, "5");
  assert.ok(results[3].entity[".metadata"].etag);
  const text = now.now._;
  const found = Object.fromEntries((await table("queryEntities", null, null)).entries.map((e) => [e.RowKey._, written(e)]));
  assert.deepEqual(found, {
    echo: { now: text, big: "5" },
    insert: { now: text },
    merge: { old: 1, now: text },
    replace: { now: text },
    upmerge: { old: 1, now: text },
    upreplace: { now: text },
  });
});

onTable(server, "an entity in a batch of its own", async (table) => {
  await table("insertEntity", entity("r", { a: of.Int32(1) }));
  const [result] = await table("executeBatch", batchOf(["retrieveEntity", "p", "r"]));
  assert.equal(result.entity.a._, 1);
});

onTable(server, "failures undo everything and name the operation", async (table) => {
  await table("insertEntity", entity("taken"));
  const old = await table("retrieveEntity", "p", "taken");
  await table("mergeEntity", entity("taken"));
  const first = ["insertEntity", entity("a")];
  assert.deepEqual(await refused(table, first, ["insertEntity", entity("taken")]), ["EntityAlreadyExists", 1]);
  assert.deepEqual(await refused(table, ["insertEntity", entity("taken")], first), ["EntityAlreadyExists", 0]);
  assert.deepEqual(await refused(table, first, ["mergeEntity", entity("missing")]), ["ResourceNotFound", 1]);
  assert.deepEqual(await refused(table, first, ["deleteEntity", entity("missing")]), ["ResourceNotFound", 1]);
  assert.deepEqual(await refused(table, first, ["replaceEntity", old]), ["UpdateConditionNotSatisfied", 1]);
  assert.deepEqual(await refused(table, first, ["insertOrMergeEntity", entity("a")]), ["InvalidDuplicateRow", 1]);
  const long = ["insertEntity", entity("c", { s: of.String("x".repeat(32769)) })];
  assert.deepEqual(await refused(table, first, ["insertEntity", entity("b")], long), ["PropertyValueTooLarge", 2]);
});

onTable(server, "keys with quotes", async (table) => {
  const keys = { PartitionKey: of.String("it's"), RowKey: of.String("100% ü's") };
  await table("executeBatch", batchOf(["insertEntity", keys]));
  await table("executeBatch", batchOf(["mergeEntity", { ...keys, n: of.Int32(1) }]));
  assert.equal((await table("retrieveEntity", "it's", "100% ü's")).n._, 1);
  await table("executeBatch", batchOf(["deleteEntity", keys]));
  assert.deepEqual(rows(await table("queryEntities", null, null)), []);
});

onTable(server, "a hundred are the most", async (table) => {
  const some = (count) => Array.from({ length: count }, (_, n) => ["insertOrReplaceEntity", entity(String(n).padStart(3, "0"))]);
  assert.equal((await table("executeBatch", batchOf(...some(100)))).length, 100);
  // The SDK itself refuses more, and other partitions.
  assert.throws(() => batchOf(...some(101)));
  const other = { PartitionKey: of.String("q"), RowKey: of.String("r") };
  assert.throws(() => batchOf(["insertEntity", entity("a")], ["insertEntity", other]));
  assert.equal((await refusal(table("executeBatch", batchOf(["insertEntity", entity("000")]))))[1], "EntityAlreadyExists");
});
