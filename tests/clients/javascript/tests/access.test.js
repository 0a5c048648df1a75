// Shared access signatures and stored access policies.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AzureSASCredential, TableClient, TableServiceClient, generateAccountSas, generateTableSas } from "@azure/data-tables";
import { OPTIONS, all, codeOf, newName, refusal, serverForThisFile, withTable } from "./rowhouse.js";

const server = serverForThisFile();
const MISMATCH = [403, "AuthorizationPermissionMismatch"];
// No table signature opens it, whatever its permissions.
const FAILURE = [403, "AuthorizationFailure"];
const OUTSIDE = [403, "AuthorizationFailure"];
const UNKNOWN = [403, "AuthenticationFailed"];
const TYPES = [403, "AuthorizationResourceTypeMismatch"];
const ALL = { query: true, add: true, update: true, delete: true };
const entity = (rowKey, partitionKey = "p", more = {}) => ({ partitionKey, rowKey, ...more });
const ahead = (minutes) => new Date(Date.now() + minutes * 60_000);
const onTable = (name, body) => test(name, () => withTable(server, body));

function signed(table, values = {}, key = 0) {
  const token = generateTableSas(table.tableName, server.credential(key), values);
  return server.table(table.tableName, new AzureSASCredential(token));
}

function holder(values) {
  return server.service(new AzureSASCredential(generateAccountSas(server.credential(), values)));
}

/** What each operation comes to. `old` and `older` must exist. */
async function outcomes(client) {
  const attempts = {
    get: () => client.getEntity("p", "old"),
    list: () => all(client.listEntities()),
    create: () => client.createEntity(entity("new")),
    merge: () => client.updateEntity(entity("old", "p", { a: 1 })),
    replace: () => client.updateEntity(entity("old", "p", { a: 1 }), "Replace"),
    upsert: () => client.upsertEntity(entity("newer")),
    batch: () => client.submitTransaction([["upsert", entity("b1")], ["delete", entity("older")]]),
    delete: () => client.deleteEntity("p", "old"),
  };
  const allowed = [];
  for (const [name, attempt] of Object.entries(attempts)) {
    try {
      await attempt();
      allowed.push(name);
    } catch (error) {
      assert.deepEqual([error.statusCode, codeOf(error)], MISMATCH, name);
    }
  }
  return allowed.join(" ");
}

for (const [names, expected] of [
  ["query", "get list"],
  ["add", "create"],
  ["update", "merge replace"],
  ["delete", "delete"],
  ["add update", "create merge replace upsert"],
  ["query add update delete", "get list create merge replace upsert batch delete"],
]) {
  const permissions = Object.fromEntries(names.split(" ").map((name) => [name, true]));
  onTable(`a table signature that may ${names}`, async (table) => {
    for (const row of ["old", "older"]) await table.createEntity(entity(row));
    assert.equal(await outcomes(signed(table, { permissions })), expected);
  });
  onTable(`an account signature that may ${names}`, async (table) => {
    for (const row of ["old", "older"]) await table.createEntity(entity(row));
    const token = generateAccountSas(server.credential(), { permissions, resourceTypes: "o" });
    assert.equal(await outcomes(server.table(table.tableName, new AzureSASCredential(token))), expected);
  });
}

onTable("the default is to query, with either key", async (table) => {
  await table.createEntity(entity("old"));
  for (const key of [0, 1]) assert.equal(await outcomes(signed(table, {}, key)), "get list");
});

onTable("a signature in the address and in a connection string", async (table) => {
  await table.createEntity(entity("r"));
  const token = generateTableSas(table.tableName, server.credential(), { permissions: ALL });
  const client = new TableClient(`${server.endpoint}?${token}`, table.tableName, OPTIONS);
  assert.equal((await client.getEntity("p", "r")).rowKey, "r");
  await client.submitTransaction([["create", entity("s")], ["delete", entity("r")]]);
  assert.equal((await all(client.listEntities())).length, 1);
  const account = generateAccountSas(server.credential());
  const text = `TableEndpoint=${server.endpoint};SharedAccessSignature=${account}`;
  const names = (await all(TableServiceClient.fromConnectionString(text, OPTIONS).listTables())).map((t) => t.name);
  assert.ok(names.includes(table.tableName));
});

onTable("a range of keys", async (table) => {
  for (const p of "abc") for (const r of "123") await table.createEntity(entity(r, p));
  const seen = async (range) =>
    (await all(signed(table, { permissions: ALL, ...range }).listEntities())).map((e) => e.partitionKey + e.rowKey).join(" ");
  assert.equal(await seen({ startPartitionKey: "c" }), "c1 c2 c3");
  assert.equal(await seen({ endPartitionKey: "a" }), "a1 a2 a3");
  assert.equal(
    await seen({ startPartitionKey: "a", startRowKey: "3", endPartitionKey: "b", endRowKey: "2" }),
    "a3 b1 b2",
  );
  const inside = signed(table, {
    permissions: ALL,
    startPartitionKey: "b",
    startRowKey: "1",
    endPartitionKey: "b",
    endRowKey: "2",
  });
  assert.deepEqual(await refusal(() => inside.getEntity("b", "3")), [404, "ResourceNotFound"]);
  assert.deepEqual(await refusal(() => inside.upsertEntity(entity("3", "b"))), OUTSIDE);
  assert.deepEqual(await refusal(() => inside.submitTransaction([["upsert", entity("1", "b")], ["delete", entity("3", "b")]])), OUTSIDE);
  await inside.submitTransaction([["upsert", entity("1", "b", { a: 1 })], ["delete", entity("2", "b")]]);
  assert.equal((await table.getEntity("b", "1")).a, 1);
});

onTable("times, addresses and protocols", async (table) => {
  const list = (values) => all(signed(table, values).listEntities());
  await list({ startsOn: ahead(-5), expiresOn: ahead(5) });
  await list({ ipRange: { start: "127.0.0.1" } });
  await list({ ipRange: { start: "127.0.0.0", end: "127.0.0.9" } });
  await list({ protocol: "https,http" });
  assert.deepEqual(await refusal(() => list({ expiresOn: ahead(-5) })), UNKNOWN);
  assert.deepEqual(await refusal(() => list({ startsOn: ahead(5), expiresOn: ahead(9) })), UNKNOWN);
  assert.deepEqual(await refusal(() => list({ ipRange: { start: "192.0.2.1" } })), [403, "AuthorizationSourceIPMismatch"]);
  assert.deepEqual(await refusal(() => list({ protocol: "https" })), [403, "AuthorizationProtocolMismatch"]);
});

onTable("a table signature reaches nothing else", async (table) => {
  const client = signed(table, { permissions: ALL });
  for (const attempt of [
    () => client.getAccessPolicy(),
    () => client.setAccessPolicy([]),
    () => client.deleteTable(),
    () => client.createTable(),
  ]) {
    assert.deepEqual(await refusal(attempt), FAILURE);
  }
  const token = generateTableSas(table.tableName, server.credential(), { permissions: ALL });
  const other = server.table(newName("Other"));
  await other.createTable();
  const stranger = server.table(other.tableName, new AzureSASCredential(token));
  assert.deepEqual(await refusal(() => all(stranger.listEntities())), UNKNOWN);
  await other.deleteTable();
  const forged = server.table(table.tableName, new AzureSASCredential(token.replace("sp=raud", "sp=r")));
  assert.deepEqual(await refusal(() => all(forged.listEntities())), UNKNOWN);
});

test("resource types and permissions of account signatures", async () => {
  const name = newName();
  const everything = { query: true, write: true, delete: true, list: true, add: true, update: true };
  const tables = holder({ permissions: everything, resourceTypes: "c" });
  await tables.createTable(name);
  assert.ok((await all(tables.listTables())).some((t) => t.name === name));
  assert.deepEqual(await refusal(() => tables.getProperties()), TYPES);
  const entities = holder({ permissions: everything, resourceTypes: "o" });
  assert.deepEqual(await refusal(() => entities.deleteTable(name)), TYPES);
  const lister = holder({ permissions: { list: true }, resourceTypes: "sco" });
  await all(lister.listTables());
  assert.deepEqual(await refusal(() => lister.deleteTable(name)), MISMATCH);
  assert.deepEqual(await refusal(() => lister.getProperties()), MISMATCH);
  await tables.deleteTable(name);
  const service = holder({ permissions: everything, resourceTypes: "s" });
  assert.ok(await service.getProperties());
  assert.deepEqual(await refusal(() => all(holder({ expiresOn: ahead(-1) }).listTables())), UNKNOWN);
  assert.deepEqual(await refusal(() => all(holder({ services: { blob: true } }).listTables())), [403, "AuthorizationServiceMismatch"]);
});

onTable("policies come back as they were set", async (table) => {
  assert.equal((await table.getAccessPolicy()).length, 0);
  const start = new Date("2021-03-04T05:06:07Z");
  const expiry = new Date("2031-03-04T05:06:07Z");
  await table.setAccessPolicy([
    { id: "whole", accessPolicy: { start, expiry, permission: "raud" } },
    { id: "it's <&> ü", accessPolicy: { permission: "r" } },
  ]);
  assert.deepEqual([...(await table.getAccessPolicy())], [
    { id: "whole", accessPolicy: { start, expiry, permission: "raud" } },
    { id: "it's <&> ü", accessPolicy: { permission: "r" } },
  ]);
  const six = Array.from({ length: 6 }, (_, n) => ({ id: `p${n}`, accessPolicy: { permission: "r" } }));
  assert.deepEqual(await refusal(() => table.setAccessPolicy(six)), [400, "InvalidXmlDocument"]);
  assert.deepEqual(
    await refusal(() => table.setAccessPolicy([{ id: "x", accessPolicy: { permission: "dr" } }])),
    [400, "InvalidXmlNodeValue"],
  );
  assert.equal((await table.getAccessPolicy()).length, 2);
  await table.setAccessPolicy([]);
  assert.equal((await table.getAccessPolicy()).length, 0);
});

onTable("signatures that name a policy", async (table) => {
  await table.createEntity(entity("old"));
  await table.setAccessPolicy([
    { id: "read", accessPolicy: { permission: "r", expiry: ahead(60) } },
    { id: "whole", accessPolicy: { permission: "raud", expiry: ahead(60) } },
    { id: "past", accessPolicy: { permission: "r", expiry: ahead(-60) } },
  ]);
  assert.equal(await outcomes(signed(table, { identifier: "read" })), "get list");
  const writer = signed(table, { identifier: "whole" });
  await writer.submitTransaction([["create", entity("s")], ["delete", entity("old")]]);
  assert.equal((await all(writer.listEntities())).length, 1);
  assert.deepEqual(await refusal(() => all(signed(table, { identifier: "past" }).listEntities())), UNKNOWN);
  assert.deepEqual(await refusal(() => all(signed(table, { identifier: "none" }).listEntities())), UNKNOWN);
  const twice = signed(table, { identifier: "read", permissions: { query: true } });
  assert.deepEqual(await refusal(() => all(twice.listEntities())), UNKNOWN);
  await table.setAccessPolicy([]);
  assert.deepEqual(await refusal(() => all(writer.listEntities())), UNKNOWN);
});
