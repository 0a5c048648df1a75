// The service's properties, its stats, and its secondary.

import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { TableServiceClient } from "@azure/data-tables";
import { OPTIONS, all, refusal, serverForThisFile, withTable } from "./rowhouse.js";

const server = serverForThisFile();

/** A client by host name. A user's DNS finds these; here every name is this machine. */
function byHostName(name) {
  const agent = new http.Agent({
    lookup: (_, options, found) =>
      options.all ? found(null, [{ address: "127.0.0.1", family: 4 }]) : found(null, "127.0.0.1", 4),
  });
  const policy = {
    name: "everyNameIsThisMachine",
    sendRequest(request, next) {
      request.agent = agent;
      return next(request);
    },
  };
  const url = `http://${name}.table.localhost:${server.port}`;
  const additionalPolicies = [{ policy, position: "perRetry" }];
  return new TableServiceClient(url, server.credential(), { ...OPTIONS, additionalPolicies });
}

test("properties come back as they were set, and the rest stays", async () => {
  const service = server.service();
  const before = await service.getProperties();
  assert.equal(before.hourMetrics.enabled, true);
  assert.deepEqual(before.cors ?? [], []);
  const retentionPolicy = { enabled: true, days: 7 };
  await service.setProperties({
    logging: { version: "1.0", read: true, write: false, delete: true, retentionPolicy },
    hourMetrics: { version: "1.0", enabled: true, includeAPIs: false, retentionPolicy },
  });
  const rule = {
    allowedOrigins: "http://a.example",
    allowedMethods: "GET,PUT",
    allowedHeaders: "x-ms-*",
    exposedHeaders: "*",
    maxAgeInSeconds: 60,
  };
  await service.setProperties({ cors: [rule] });
  const after = await service.getProperties();
  assert.equal(after.logging.read, true);
  assert.equal(after.logging.delete, true);
  assert.equal(after.logging.retentionPolicy.days, 7);
  assert.equal(after.hourMetrics.includeAPIs, false);
  assert.deepEqual(after.cors.map((c) => ({ ...c })), [rule]);
  const preflight = { origin: "http://a.example", "access-control-request-method": "PUT" };
  const answer = await fetch(`${server.endpoint}/Tables`, { method: "OPTIONS", headers: preflight });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("access-control-allow-origin"), "http://a.example");
  const bad = { ...rule, allowedMethods: "FETCH" };
  assert.deepEqual(await refusal(() => service.setProperties({ cors: [bad] })), [400, "InvalidXmlNodeValue"]);
});

test("stats come from the secondary of the host name", async () => {
  const service = byHostName(server.account);
  await all(service.listTables());
  const { geoReplication } = await service.getStatistics();
  assert.equal(geoReplication.status, "live");
  assert.ok(Math.abs(Date.now() - geoReplication.lastSyncTime.getTime()) < 300_000);
});

test("the secondary reads and never writes", () =>
  withTable(server, async (table) => {
    await table.createEntity({ partitionKey: "p", rowKey: "r" });
    const secondary = byHostName(`${server.account}-secondary`);
    assert.ok((await all(secondary.listTables())).some((t) => t.name === table.tableName));
    assert.deepEqual(await refusal(() => secondary.deleteTable(table.tableName)), [403, "InsufficientAccountPermissions"]);
  }));
