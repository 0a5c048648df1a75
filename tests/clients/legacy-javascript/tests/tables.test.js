// Creating, listing and deleting tables, and who may.

import assert from "node:assert/strict";
import { test } from "node:test";
import azure from "azure-storage";
import { call, entity, newKey, newName, refusal, serverForThisFile } from "./storage.js";

const server = serverForThisFile();

test("a table is created, found and deleted", async () => {
  const service = server.service();
  const name = newName("MixedCase");
  assert.equal((await call(service, "createTable", name)).isSuccessful, true);
  assert.deepEqual(await refusal(call(service, "createTable", name.toLowerCase())), [409, "TableAlreadyExists"]);
  assert.equal((await call(service, "createTableIfNotExists", name)).created, false);
  assert.equal((await call(service, "doesTableExist", name)).exists, true);
  await call(service, "deleteTable", name);
  assert.equal((await call(service, "doesTableExist", name)).exists, false);
  assert.equal(await call(service, "deleteTableIfExists", name), false);
  assert.deepEqual(await refusal(call(service, "deleteTable", name)), [404, "ResourceNotFound"]);
  assert.equal((await call(service, "createTableIfNotExists", name)).created, true);
  assert.equal(await call(service, "deleteTableIfExists", name), true);
});

test("lists come in pages, and by prefix", async () => {
  const service = server.service();
  const prefix = newName("Paged");
  const all = Array.from({ length: 5 }, (_, n) => `${prefix}x${n}`);
  for (const name of all) await call(service, "createTable", name);
  assert.deepEqual((await call(service, "listTablesSegmentedWithPrefix", prefix, null)).entries, all);
  const found = [];
  let token = null;
  do {
    const page = await call(service, "listTablesSegmented", token, { maxResults: 2 });
    assert.ok(page.entries.length <= 2);
    found.push(...page.entries);
    token = page.continuationToken;
  } while (token);
  assert.deepEqual(found.filter((name) => name.startsWith(prefix)), all);
  for (const name of all) await call(service, "deleteTable", name);
});

test("a missing table is reported", async () => {
  const service = server.service();
  const missing = newName("Missing");
  for (const [method, ...rest] of [
    ["insertEntity", entity("r")],
    ["insertOrMergeEntity", entity("r")],
    ["retrieveEntity", "p", "r"],
    ["queryEntities", null, null],
  ]) {
    assert.deepEqual(await refusal(call(service, method, missing, ...rest)), [404, "TableNotFound"]);
  }
});

test("both keys open the door, others do not", async () => {
  for (const key of server.keys) await call(server.service(key), "listTablesSegmented", null);
  const wrong = server.service(newKey());
  assert.deepEqual(await refusal(call(wrong, "listTablesSegmented", null)), [403, "AuthenticationFailed"]);
});

test("connection strings", async () => {
  const text = `DefaultEndpointsProtocol=http;AccountName=${server.account};AccountKey=${server.keys[0]};TableEndpoint=${server.endpoint}`;
  const name = newName();
  const service = azure.createTableService(text);
  await call(service, "createTable", name);
  await call(service, "insertEntity", name, entity("r"));
  await call(service, "deleteTable", name);
});
