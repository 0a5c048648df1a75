// What a suite does with the package.
const assert = require("node:assert/strict");
const { createHmac } = require("node:crypto");
const { existsSync, mkdtempSync, rmSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { test } = require("node:test");

const { binary, start } = require("rowhouse");

const part = (server, name) => new RegExp(`(?:^|;)${name}=([^;]*)`).exec(server.connectionString)[1];

async function ask(server, method, body) {
  const account = part(server, "AccountName");
  const date = new Date().toUTCString();
  const key = Buffer.from(part(server, "AccountKey"), "base64");
  const signature = createHmac("sha256", key).update(`${date}\n/${account}/${account}/Tables`).digest("base64");
  return fetch(`${server.endpoint}/Tables`, {
    method,
    body: body && JSON.stringify(body),
    headers: {
      Authorization: `SharedKeyLite ${account}:${signature}`,
      "x-ms-date": date,
      "x-ms-version": "2019-02-02",
      Accept: "application/json;odata=nometadata",
      "Content-Type": "application/json",
    },
  });
}

async function create(server, TableName) {
  const answer = await ask(server, "POST", { TableName });
  assert.equal(answer.status, 201, await answer.text());
}

async function tables(server) {
  const answer = await ask(server, "GET");
  assert.equal(answer.status, 200);
  return (await answer.json()).value.map((table) => table.TableName);
}

test("two servers at once are two", async () => {
  const [one, other] = await Promise.all([start(), start()]);
  await create(one, "People");
  assert.deepEqual([await tables(one), await tables(other)], [["People"], []]);
  await one.reset();
  assert.deepEqual(await tables(one), []);
  await one.stop();
  await assert.rejects(tables(one));
  await assert.rejects(one.reset());
  await one.stop();
  assert.deepEqual(await tables(other), []);
  await other.stop();
});

test("a snapshot is restored, as often as needed", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  await create(server, "Seeded");
  const seeded = await server.snapshot();
  for (const name of ["First", "Second"]) {
    await create(server, name);
    await server.restore(seeded);
    assert.deepEqual(await tables(server), ["Seeded"]);
  }
  await assert.rejects(server.restore("no/such"), /refused POST \/test\/snapshots\/no%2Fsuch\/restore: 404 .*SnapshotNotFound/);
});

test("faults are ordered, counted and removed", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  await server.setFaults([{ operation: "CreateTable", error: "ServerBusy", times: 2 }]);
  const status = async (TableName) => (await ask(server, "POST", { TableName })).status;
  assert.deepEqual([await status("One"), await status("One"), await status("One")], [503, 503, 201]);
  assert.deepEqual(await server.faults(), [{ matched: 3, hits: 2 }]);
  await assert.rejects(server.setFaults([{ error: "NoSuchError" }]), /refused PUT \/test\/faults: 400 .*NoSuchError/);
  await server.setFaults([{ operation: "CreateTable", error: "ServerBusy" }]);
  await server.reset();
  assert.deepEqual([await server.faults(), await status("One")], [[], 201]);
});

test("a module can import it", async () => {
  const imported = await import("rowhouse");
  assert.equal(imported.start, start);
  assert.ok(existsSync(imported.binary()));
  assert.equal(imported.binary(), binary());
});

test("options are heeded, and settings around it are not", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "rowhouse-npm-"));
  t.after(() => rmSync(folder, { recursive: true }));
  process.env.ROWHOUSE_ACCOUNTS = "leaked:a2V5";
  const databaseUrl = `sqlite://${path.relative(process.cwd(), path.join(folder, "kept.db"))}`;
  const first = await start({ databaseUrl });
  assert.equal(part(first, "AccountName"), "devstoreaccount1");
  await create(first, "Kept");
  await first.stop();
  assert.ok(existsSync(path.join(folder, "kept.db")));
  const again = await start({ databaseUrl, arguments: ["--workers", "1"], env: { ROWHOUSE_MAX_CLIENTS: "100" } });
  assert.deepEqual(await tables(again), ["Kept"]);
  await again.stop();
});

test("a server that cannot start says why", async () => {
  await assert.rejects(start({ arguments: ["--frob"] }), /did not start: it ended with 1\n[^]*--frob/);
  const running = await start();
  const { port } = new URL(running.endpoint);
  await assert.rejects(start({ port: Number(port) }), new RegExp(`cannot listen on 127.0.0.1:${port}`));
  await running.stop();
});

test("a server that takes too long is ended", async () => {
  await assert.rejects(start({ timeout: 0 }), /took longer than 0 ms/);
});
