// Extended queries: filters and an order that the service lacks, for an account that has them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { odata } from "@azure/data-tables";
import { all, newName, refusal, serverForThisFile } from "./rowhouse.js";

const server = serverForThisFile(({ account }) => ({ ROWHOUSE_EXTENDED_QUERIES: account }));

const NAMES = ["Smith", "smart", "Jones", "O'Neil"];

/** Adds `$orderby` to each request, which the SDK has no option for. */
const ordered = (order) => ({
  additionalPolicies: [
    {
      position: "perCall",
      policy: {
        name: "orderby",
        sendRequest: (request, next) => {
          const url = new URL(request.url);
          url.searchParams.set("$orderby", order);
          request.url = url.toString();
          return next(request);
        },
      },
    },
  ],
});

async function filled(options) {
  const name = newName();
  const table = server.table(name);
  await table.createTable();
  for (const [at, text] of NAMES.entries()) await table.createEntity({ partitionKey: "p", rowKey: `${at}`, name: text });
  return server.table(name, server.credential(), options);
}

const rows = async (table, filter) =>
  (await all(table.listEntities({ queryOptions: { filter } }))).map(({ rowKey }) => rowKey).join("");

test("functions, lists and null reach the server as they are written", async () => {
  const table = await filled();
  const [prefix, quoted] = ["Sm", "O'"];
  for (const [filter, expected] of [
    [odata`startswith(name,${prefix})`, "0"],
    [odata`startswith(name,${quoted})`, "3"],
    [odata`contains(tolower(name),${"m"})`, "01"],
    [odata`name in (${"Jones"},${"smart"})`, "12"],
    ["missing eq null", "0123"],
  ])
    assert.equal(await rows(table, filter), expected, filter);
  assert.deepEqual(await refusal(() => rows(table, "length(name) eq 5")), [501, "NotImplemented"]);
});

test("pages come in descending order", async () => {
  const table = await filled(ordered("PartitionKey desc,RowKey desc"));
  const pages = [];
  for await (const page of table.listEntities().byPage({ maxPageSize: 3 })) pages.push(page.map(({ rowKey }) => rowKey).join(""));
  assert.deepEqual(pages, ["321", "0"]);
});
