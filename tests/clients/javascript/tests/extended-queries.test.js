// Extended queries: filters and an order that the service lacks, for an account that has them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { TableClient, odata } from "@azure/data-tables";
import { OPTIONS, all, newName, refusal, serverForThisFile } from "./rowhouse.js";

const PAGE = readFileSync(new URL("../../../../docs/how-to/operator-features.md", import.meta.url), "utf8");
const EXAMPLE = /```javascript\n(.*?)```/s.exec(PAGE)[1];
const INDEX_MILLISECONDS = 60_000;

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

/** Makes an index over a property, and waits until the server uses it. */
async function makeIndex(table, name) {
  await server.command("index", "create", table, name, "--account", server.account, "--yes");
  const reader = server.table(table, server.credential(), ordered(name));
  for (const end = Date.now() + INDEX_MILLISECONDS; ; await setTimeout(100)) {
    try {
      return await all(reader.listEntities());
    } catch (error) {
      if (error.statusCode !== 501 || Date.now() > end) throw error;
    }
  }
}

/** A client that may use http, and never tries again. */
class LocalTableClient extends TableClient {
  constructor(endpoint, name, credential, options) {
    super(endpoint, name, credential, { ...OPTIONS, ...options });
  }
}

test("pages come in the order of a property that has an index", async () => {
  const table = server.table("Logs");
  await table.createTable();
  const minute = (at) => new Date(Date.UTC(2024, 4, 1, 12, at)).toISOString();
  for (let at = 0; at < 120; at += 1)
    await table.createEntity({ partitionKey: `p${at % 3}`, rowKey: `${at}`, Created: new Date(minute((at * 7) % 120)) });
  await makeIndex("Logs", "Created");
  const example = new Function("TableClient", "endpoint", "credential", `${EXAMPLE}\nreturn pages;`);
  const pages = [];
  for await (const page of example(LocalTableClient, server.endpoint, server.credential()))
    pages.push(page.map(({ Created }) => new Date(Created).toISOString()));
  const newest = Array.from({ length: 120 }, (_, at) => minute(119 - at));
  assert.deepEqual(pages, [newest.slice(0, 100), newest.slice(100)]);
});

test("pages come in descending order", async () => {
  const table = await filled(ordered("PartitionKey desc,RowKey desc"));
  const pages = [];
  for await (const page of table.listEntities().byPage({ maxPageSize: 3 })) pages.push(page.map(({ rowKey }) => rowKey).join(""));
  assert.deepEqual(pages, ["321", "0"]);
});
