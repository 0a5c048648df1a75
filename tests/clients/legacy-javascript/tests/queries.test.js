// Filters that the SDK builds, projections, and pages.

import assert from "node:assert/strict";
import azure from "azure-storage";
import { entity, of, onTable, refusal, rows, serverForThisFile, written } from "./storage.js";

const { TableBatch, TableQuery, TableUtilities } = azure;
const { EQUAL, GREATER_THAN, GREATER_THAN_OR_EQUAL, LESS_THAN, NOT_EQUAL } = TableUtilities.QueryComparisons;
const server = serverForThisFile();
const GUID = "c9da6455-213d-42c9-9a79-3e9149a5783";
const query = () => new TableQuery();

onTable(server, "filters of every type", async (table) => {
  const early = Date.UTC(2020, 0, 1);
  for (let n = 0; n < 5; n += 1) {
    await table("insertEntity", entity(String(n), {
      n: of.Int32(n),
      big: of.Int64(String(n * 1e12)),
      d: of.Double(n + 0.5),
      s: of.String(`it's ${n}`),
      even: of.Boolean(n % 2 === 0),
      t: of.DateTime(new Date(early + n * 1000)),
      g: of.Guid(GUID + n),
      x: of.Binary(Buffer.from([n])),
      ...(n === 4 && { only: of.String("here") }),
    }));
  }
  const { AND, OR } = TableUtilities.TableOperators;
  const low = TableQuery.int32Filter("n", LESS_THAN, 1);
  for (const [asked, expected] of [
    [query().where("PartitionKey eq ?", "p").and("RowKey ge ?", "3"), "34"],
    [query().where("n == ? || n > ?", 1, 3), "14"],
    [query().where("n eq ?int32?", 1).or("n eq ?int32?", 2), "12"],
    [query().where(TableQuery.combineFilters(low, OR, TableQuery.stringFilter("s", EQUAL, "it's 3"))), "03"],
    [query().where(TableQuery.combineFilters(low, AND, TableQuery.booleanFilter("even", EQUAL, false))), ""],
    [query().where(TableQuery.int64Filter("big", GREATER_THAN_OR_EQUAL, "3000000000000")), "34"],
    [query().where(TableQuery.doubleFilter("d", LESS_THAN, 1.75)), "01"],
    [query().where(TableQuery.dateFilter("t", GREATER_THAN, new Date(early + 2000))), "34"],
    [query().where(TableQuery.guidFilter("g", EQUAL, `${GUID}2`)), "2"],
    [query().where(TableQuery.binaryFilter("x", GREATER_THAN_OR_EQUAL, Buffer.from([3]))), "34"],
    [query().where(TableQuery.stringFilter("only", NOT_EQUAL, "there")), "4"],
    [query().where("not (n gt ?)", 1), "01"],
  ]) {
    assert.equal(rows(await table("queryEntities", asked, null)).join(""), expected, asked.toQueryObject().$filter);
  }
  assert.deepEqual(await refusal(table("queryEntities", query().where("n eq"), null)), [400, "InvalidInput"]);
});

onTable(server, "select and top", async (table) => {
  for (const row of "123") await table("insertEntity", entity(row, { a: of.String(row), b: of.Int32(1) }));
  const page = await table("queryEntities", query().select("RowKey", "a").top(2), null);
  assert.deepEqual(page.entries.map(written), [{ a: "1" }, { a: "2" }]);
  assert.ok(page.continuationToken);
});

onTable(server, "pages and their tokens", async (table) => {
  const all = Array.from({ length: 1100 }, (_, n) => String(n).padStart(4, "0"));
  for (let start = 0; start < 1100; start += 100) {
    const batch = new TableBatch();
    for (const row of all.slice(start, start + 100)) batch.insertEntity(entity(row));
    await table("executeBatch", batch);
  }
  for (const [top, sizes] of [[undefined, [1000, 100]], [400, [400, 400, 300]]]) {
    const pages = [];
    let token = null;
    do {
      const page = await table("queryEntities", top ? query().top(top) : null, token);
      pages.push(rows(page));
      token = page.continuationToken;
    } while (token);
    assert.deepEqual(pages.map((page) => page.length), sizes);
    assert.deepEqual(pages.flat(), all);
  }
});
