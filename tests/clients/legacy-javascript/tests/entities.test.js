// Entities of every type, under their ETags.

import assert from "node:assert/strict";
import azure from "azure-storage";
import { entity, of, onTable, refusal, rows, serverForThisFile, written } from "./storage.js";

const server = serverForThisFile();
const GUID = "c9da6455-213d-42c9-9a79-3e9149a57833";

onTable(server, "insert, retrieve, merge, replace, delete", async (table) => {
  const inserted = await table("insertEntity", entity("r", { a: of.Int32(1), s: "x" }));
  const read = await table("retrieveEntity", "p", "r");
  assert.deepEqual(written(read), { a: 1, s: "x" });
  assert.equal(read[".metadata"].etag, inserted[".metadata"].etag);
  assert.ok(Math.abs(Date.now() - read.Timestamp._) < 60_000);
  assert.deepEqual(await refusal(table("insertEntity", entity("r"))), [409, "EntityAlreadyExists"]);
  await table("mergeEntity", entity("r", { b: true }));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), { a: 1, s: "x", b: true });
  await table("replaceEntity", entity("r", { c: 2 }));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), { c: 2 });
  await table("deleteEntity", entity("r"));
  assert.deepEqual(await refusal(table("retrieveEntity", "p", "r")), [404, "ResourceNotFound"]);
  assert.deepEqual(await refusal(table("deleteEntity", entity("r"))), [404, "ResourceNotFound"]);
  assert.deepEqual(await refusal(table("mergeEntity", entity("r"))), [404, "ResourceNotFound"]);
});

onTable(server, "insertion that echoes the entity", async (table) => {
  const echoed = await table("insertEntity", entity("r", { g: of.Guid(GUID), d: of.Double(2) }), { echoContent: true });
  assert.deepEqual(written(echoed), { g: GUID, d: 2 });
});

onTable(server, "both upserts", async (table) => {
  await table("insertOrMergeEntity", entity("r", { a: 1 }));
  await table("insertOrMergeEntity", entity("r", { b: 2 }));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), { a: 1, b: 2 });
  await table("insertOrReplaceEntity", entity("r", { c: 3 }));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), { c: 3 });
});

onTable(server, "etags", async (table) => {
  await table("insertEntity", entity("r"));
  const first = await table("retrieveEntity", "p", "r");
  const merged = await table("mergeEntity", { ...first, a: of.Int32(1) });
  assert.notEqual(merged[".metadata"].etag, first[".metadata"].etag);
  for (const method of ["mergeEntity", "replaceEntity", "deleteEntity"]) {
    assert.deepEqual(await refusal(table(method, first)), [412, "UpdateConditionNotSatisfied"]);
  }
  const second = await table("retrieveEntity", "p", "r");
  second[".metadata"].etag = "*";
  await table("replaceEntity", second);
  await table("deleteEntity", await table("retrieveEntity", "p", "r"));
});

onTable(server, "keys of any characters that are allowed", async (table) => {
  for (const key of ["it's", "''", "a b", "ü日本😀", "100%", "%41", "a+b", "a&b=c", "a;b,c", "(x)", ""]) {
    const keys = { PartitionKey: of.String(key), RowKey: of.String(key) };
    await table("insertEntity", { ...keys, n: of.Int32(1) });
    await table("mergeEntity", { ...keys, n: of.Int32(2) });
    const found = await table("retrieveEntity", key, key);
    assert.deepEqual([found.PartitionKey._, found.RowKey._, found.n._], [key, key, 2]);
    const query = new azure.TableQuery().where("PartitionKey eq ? and RowKey eq ?", key, key);
    assert.deepEqual(rows(await table("queryEntities", query, null)), [key]);
    await table("deleteEntity", keys);
  }
  for (const key of ["a/b", "a\\b", "a#b", "a?b"]) {
    assert.deepEqual(await refusal(table("insertEntity", entity(key))), [400, "OutOfRangeInput"]);
  }
});

onTable(server, "every type goes and comes back", async (table) => {
  const values = {
    string: of.String("it's ünïcödé 😀 \" \\ \u2028"),
    empty: of.String(""),
    yes: of.Boolean(true),
    no: of.Boolean(false),
    int: of.Int32(-5),
    most: of.Int32(2 ** 31 - 1),
    double: of.Double(2.5),
    two: of.Double(2),
    tiny: of.Double(Number.MIN_VALUE),
    huge: of.Double(Number.MAX_VALUE),
    big: of.Int64("9223372036854775807"),
    small: of.Int64("-9223372036854775808"),
    date: of.DateTime(new Date("2020-02-29T12:30:45.123Z")),
    guid: of.Guid(GUID),
    binary: of.Binary(Buffer.from([0, 1, 255])),
  };
  await table("insertEntity", entity("r", values));
  const expected = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value._]));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), expected);
  const [listed] = (await table("queryEntities", null, null)).entries;
  assert.deepEqual(written(listed), expected);
  for (const name of ["big", "date", "guid", "binary"]) assert.equal(listed[name].$, values[name].$);
});

onTable(server, "numbers that are none", async (table) => {
  await table("insertEntity", entity("r", { nan: of.Double(NaN), inf: of.Double(Infinity), neg: of.Double(-Infinity) }));
  assert.deepEqual(written(await table("retrieveEntity", "p", "r")), { nan: NaN, inf: Infinity, neg: -Infinity });
});

onTable(server, "limits", async (table) => {
  const many = Object.fromEntries(Array.from({ length: 253 }, (_, n) => [`p${n}`, of.Int32(n)]));
  for (const [values, code] of [
    [many, "TooManyProperties"],
    [{ s: of.String("x".repeat(32769)) }, "PropertyValueTooLarge"],
    [{ ["n".repeat(256)]: of.Int32(1) }, "PropertyNameTooLong"],
    [{ g: of.Guid("no") }, "InvalidInput"],
  ]) {
    assert.deepEqual(await refusal(table("insertEntity", entity("r", values))), [400, code]);
  }
});
