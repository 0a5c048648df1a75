import assert from "node:assert/strict";
import { test } from "node:test";
import { TableClient } from "@azure/data-tables";
import { AzuriteContainer } from "@testcontainers/azurite";
import { GenericContainer, Wait } from "testcontainers";

const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const use = async (connectionString) => {
  const people = TableClient.fromConnectionString(connectionString, "People", { allowInsecureConnection: true });
  await people.createTable();
  await people.createEntity({ partitionKey: "p", rowKey: "r", age: 33 });
  assert.equal((await people.getEntity("p", "r")).age, 33);
};

test("the module for Azurite", async () => {
  const storage = await new AzuriteContainer("rowhouse-azurite").start();
  try {
    await use(storage.getConnectionString());
  } finally {
    await storage.stop();
  }
});

test("a generic container", async () => {
  const container = await new GenericContainer("rowhouse")
    .withExposedPorts(10002)
    .withEnvironment({ DATABASE_URL: "sqlite::memory:", ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT: "true" })
    .withWaitStrategy(Wait.forLogMessage("Rowhouse is ready at"))
    .start();
  try {
    const address = `http://${container.getHost()}:${container.getMappedPort(10002)}/devstoreaccount1`;
    await use(
      `DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=${key};TableEndpoint=${address};`,
    );
  } finally {
    await container.stop();
  }
});
