// Creating, listing, querying and deleting tables, and who may.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AzureNamedKeyCredential, TableClient, TableServiceClient, odata } from "@azure/data-tables";
import { OPTIONS, all, newKey, newName, refusal, serverForThisFile } from "./rowhouse.js";

const server = serverForThisFile();
const names = async (items) => (await all(items)).map((table) => table.name);
const matching = (filter) => ({ queryOptions: { filter } });

test("a table is created, listed and deleted", async () => {
  const service = server.service();
  const name = newName();
  await service.createTable(name);
  assert.ok((await names(service.listTables())).includes(name));
  await service.deleteTable(name);
  assert.ok(!(await names(service.listTables())).includes(name));
});

test("a table exists once, in any casing; the SDK hides the conflict", async () => {
  const name = newName("MixedCase");
  const statuses = [];
  const onResponse = (response) => statuses.push(response.status);
  await server.service().createTable(name, { onResponse });
  await server.service().createTable(name.toLowerCase(), { onResponse });
  assert.deepEqual([...new Set(statuses)], [201, 409]);
  const client = server.table(name.toUpperCase());
  await client.createTable();
  await client.createEntity({ partitionKey: "p", rowKey: "r" });
  assert.equal((await server.table(name).getEntity("p", "r")).rowKey, "r");
  assert.deepEqual(await names(server.service().listTables(matching(odata`TableName eq ${name}`))), [name]);
  await client.deleteTable();
});

test("deleting what is not there is hidden too", async () => {
  const statuses = [];
  const onResponse = (response) => statuses.push(response.status);
  await server.service().deleteTable(newName("Missing"), { onResponse });
  await server.table(newName("Missing")).deleteTable({ onResponse });
  assert.deepEqual(statuses, [404, 404]);
});

test("a missing table is reported", async () => {
  const missing = server.table(newName("Missing"));
  const entity = { partitionKey: "p", rowKey: "r" };
  for (const attempt of [
    () => missing.createEntity(entity),
    () => missing.upsertEntity(entity),
    () => missing.updateEntity(entity),
    () => missing.getEntity("p", "r"),
    () => all(missing.listEntities()),
    () => missing.submitTransaction([["create", entity]]),
  ]) {
    assert.deepEqual(await refusal(attempt), [404, "TableNotFound"]);
  }
  // As recorded: for its policies a missing table is a missing resource.
  assert.deepEqual(await refusal(() => missing.getAccessPolicy()), [404, "TableNotFound"]);
});

test("lists are ordered and come in pages that a token continues", async () => {
  const service = server.service();
  const prefix = newName("Paged");
  const created = Array.from({ length: 7 }, (_, n) => `${prefix}x${n}`);
  for (const name of [...created].reverse()) await service.createTable(name);
  const some = () => service.listTables(matching(odata`TableName ge ${prefix + "x"} and TableName lt ${prefix + "y"}`));
  assert.deepEqual(await names(some()), created);
  const sizes = [];
  for await (const page of some().byPage({ maxPageSize: 3 })) sizes.push(page.length);
  assert.deepEqual(sizes, [3, 3, 1]);
  const first = (await some().byPage({ maxPageSize: 3 }).next()).value;
  const rest = await all(some().byPage({ maxPageSize: 3, continuationToken: first.continuationToken }));
  assert.deepEqual(rest.flat().map((table) => table.name), created.slice(3));
  for (const name of created) await service.deleteTable(name);
});

test("bad names are refused", async () => {
  for (const [name, code] of [["my_table", "InvalidResourceName"], ["ab", "OutOfRangeInput"], ["tables", "InvalidInput"]]) {
    assert.deepEqual(await refusal(() => server.service().createTable(name)), [400, code]);
  }
});

test("both keys open the door, others do not", async () => {
  await all(server.service(server.credential(1)).listTables());
  const wrong = new AzureNamedKeyCredential(server.account, newKey());
  assert.deepEqual(await refusal(() => all(server.service(wrong).listTables())), [403, "AuthenticationFailed"]);
  wrong.update(server.account, server.keys[0]);
  await all(server.service(wrong).listTables());
});

test("connection strings", async () => {
  const text = `DefaultEndpointsProtocol=http;AccountName=${server.account};AccountKey=${server.keys[0]};TableEndpoint=${server.endpoint}`;
  const name = newName();
  await TableServiceClient.fromConnectionString(text, OPTIONS).createTable(name);
  const client = TableClient.fromConnectionString(text, name, OPTIONS);
  await client.createEntity({ partitionKey: "p", rowKey: "r" });
  assert.equal((await all(client.listEntities())).length, 1);
  await client.deleteTable();
});

test("without the option for http the SDK sends nothing", async () => {
  const service = new TableServiceClient(server.endpoint, server.credential());
  await assert.rejects(() => all(service.listTables()), /allowInsecureConnection/);
});
