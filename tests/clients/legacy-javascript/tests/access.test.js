// Shared access signatures, policies, and the service's properties and stats.

import assert from "node:assert/strict";
import { test } from "node:test";
import azure from "azure-storage";
import { call, entity, newName, onTable, refusal, rows, serverForThisFile } from "./storage.js";

const server = serverForThisFile();
const MISMATCH = [403, "AuthorizationPermissionMismatch"];
const UNKNOWN = [403, "AuthenticationFailed"];
const ahead = (minutes) => new Date(Date.now() + minutes * 60_000);
const policy = (values) => ({ AccessPolicy: { Expiry: ahead(60), ...values } });
const signed = (table, values) => server.holder(server.service().generateSharedAccessSignature(table, values));
const list = (client, table) => call(client, "queryEntities", table, null, null);

function holder(permissions, types) {
  const { TABLE } = azure.Constants.AccountSasConstants.Services;
  const values = policy({ Services: TABLE, ResourceTypes: types, Permissions: permissions });
  return server.holder(azure.generateAccountSharedAccessSignature(server.account, server.keys[1], values));
}

/** What each operation comes to. */
async function allowed(client, table) {
  const attempts = {
    get: () => call(client, "retrieveEntity", table, "p", "old"),
    list: () => list(client, table),
    insert: () => call(client, "insertEntity", table, entity("new")),
    merge: () => call(client, "mergeEntity", table, entity("old")),
    upsert: () => call(client, "insertOrReplaceEntity", table, entity("newer")),
    delete: () => call(client, "deleteEntity", table, entity("old")),
  };
  const found = [];
  for (const [name, attempt] of Object.entries(attempts)) {
    try {
      await attempt();
      found.push(name);
    } catch (error) {
      assert.deepEqual([error.statusCode, error.code], MISMATCH, name);
    }
  }
  return found.join(" ");
}

for (const [permissions, expected] of [
  ["r", "get list"],
  ["a", "insert"],
  ["u", "merge"],
  ["d", "delete"],
  ["au", "insert merge upsert"],
  ["raud", "get list insert merge upsert delete"],
]) {
  onTable(server, `a table signature for ${permissions}`, async (insert, table) => {
    await insert("insertEntity", entity("old"));
    assert.equal(await allowed(signed(table, policy({ Permissions: permissions })), table), expected);
  });
  onTable(server, `an account signature for ${permissions}`, async (insert, table) => {
    await insert("insertEntity", entity("old"));
    assert.equal(await allowed(holder(permissions, "o"), table), expected);
  });
}

onTable(server, "ranges, times, addresses and protocols", async (own, table) => {
  for (const row of "123") await own("insertEntity", entity(row));
  const asked = (values) => list(signed(table, policy({ Permissions: "raud", ...values })), table);
  const range = { StartPk: "p", StartRk: "1", EndPk: "p", EndRk: "2" };
  assert.deepEqual(rows(await asked(range)), ["1", "2"]);
  const inside = signed(table, policy({ Permissions: "raud", ...range }));
  assert.deepEqual(await refusal(call(inside, "insertOrMergeEntity", table, entity("3"))), [403, "AuthorizationFailure"]);
  await asked({ Start: ahead(-5) });
  await asked({ IPAddressOrRange: "127.0.0.0-127.0.0.9" });
  await asked({ Protocols: "https,http" });
  assert.deepEqual(await refusal(asked({ Expiry: ahead(-5) })), UNKNOWN);
  assert.deepEqual(await refusal(asked({ Start: ahead(5) })), UNKNOWN);
  assert.deepEqual(await refusal(asked({ IPAddressOrRange: "192.0.2.1" })), [403, "AuthorizationSourceIPMismatch"]);
  assert.deepEqual(await refusal(asked({ Protocols: "https" })), [403, "AuthorizationProtocolMismatch"]);
});

test("resource types of account signatures", async () => {
  const name = newName();
  await call(holder("c", "c"), "createTable", name);
  await call(holder("l", "c"), "listTablesSegmented", null);
  assert.deepEqual(await refusal(call(holder("d", "o"), "deleteTable", name)), [403, "AuthorizationResourceTypeMismatch"]);
  assert.deepEqual(await refusal(call(holder("l", "sco"), "deleteTable", name)), MISMATCH);
  await call(holder("d", "c"), "deleteTable", name);
});

onTable(server, "policies, and signatures that name them", async (own, table) => {
  await own("insertEntity", entity("old"));
  const start = new Date("2021-03-04T05:06:07Z");
  const expiry = new Date("2041-03-04T05:06:07Z");
  const read = { Start: start, Expiry: expiry, Permissions: "r" };
  await own("setTableAcl", { read, "it's <&> ü": { Expiry: expiry, Permissions: "raud" } });
  const { signedIdentifiers } = await own("getTableAcl");
  assert.deepEqual(Object.keys(signedIdentifiers), ["read", "it's <&> ü"]);
  assert.deepEqual({ ...signedIdentifiers.read }, read);
  assert.equal(await allowed(signed(table, { Id: "read" }), table), "get list");
  assert.deepEqual(await refusal(list(signed(table, { Id: "none" }), table)), UNKNOWN);
  assert.deepEqual(await refusal(own("setTableAcl", { x: { Permissions: "dr" } })), [400, "InvalidXmlNodeValue"]);
  await own("setTableAcl", null);
  assert.deepEqual({ ...(await own("getTableAcl")).signedIdentifiers }, {});
  assert.deepEqual(await refusal(list(signed(table, { Id: "read" }), table)), UNKNOWN);
});

test("properties come back as they were set", async () => {
  const service = server.service();
  const RetentionPolicy = { Enabled: true, Days: 7 };
  const metrics = { Version: "1.0", Enabled: true, IncludeAPIs: true, RetentionPolicy };
  const rule = {
    AllowedOrigins: ["http://a.example"],
    AllowedMethods: ["GET", "PUT"],
    AllowedHeaders: ["x-ms-*"],
    ExposedHeaders: ["*"],
    MaxAgeInSeconds: 60,
  };
  const properties = {
    Logging: { Version: "1.0", Read: true, Write: false, Delete: true, RetentionPolicy },
    HourMetrics: metrics,
    MinuteMetrics: metrics,
    Cors: { CorsRule: [rule] },
  };
  await call(service, "setServiceProperties", properties);
  assert.deepEqual(await call(service, "getServiceProperties"), properties);
});

test("stats come from the secondary", async () => {
  const options = { locationMode: azure.StorageUtilities.LocationMode.SECONDARY_ONLY };
  const { GeoReplication } = await call(server.service(), "getServiceStats", options);
  assert.equal(GeoReplication.Status, "live");
  assert.ok(Math.abs(Date.now() - GeoReplication.LastSyncTime) < 300_000);
});
