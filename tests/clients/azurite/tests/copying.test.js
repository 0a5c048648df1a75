// `rowhouse copy` and `verify` with a real Azurite, and with the file that it keeps its tables in.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";
import { Server } from "../../javascript/tests/server.js";

const REPOSITORY = fileURLToPath(new URL("../../../../", import.meta.url));
const BINARY = path.resolve(process.env.ROWHOUSE_BIN || path.join(REPOSITORY, "target/debug/rowhouse"));
const AZURITE = fileURLToPath(new URL("../node_modules/.bin/azurite-table", import.meta.url));
const NAME = "copies";
const KEY = Buffer.alloc(64, 7).toString("base64");
const KEYS = ["", "it's", "a b+c%20&d=é", "ab", "Z", "z", "\uffee", "\u{1f600}", "~", "0"];

const server = new Server();
let folder;
let azurite;
let azuritePlace;
let rowhousePlace;

/** The exit status and the output of a command. */
function rowhouse(...args) {
  return new Promise((resolve) => {
    const env = { PATH: process.env.PATH };
    execFile(BINARY, args, { cwd: folder, env }, (error, stdout, stderr) =>
      resolve({ status: error ? error.code : 0, stdout, stderr }),
    );
  });
}

async function succeeds(...args) {
  const done = await rowhouse(...args);
  assert.equal(done.status, 0, `${args[0]}: ${done.stdout}${done.stderr}`);
  return done.stdout;
}

function freePort() {
  return new Promise((resolve) => {
    const socket = createServer().listen(0, "127.0.0.1", () => {
      const { port } = socket.address();
      socket.close(() => resolve(port));
    });
  });
}

async function until(what, isSo) {
  for (let turn = 0; turn < 300; turn++) {
    if (await isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.fail(`${what} did not happen`);
}

function client(endpoint, account, key, table) {
  const credential = new AzureNamedKeyCredential(account, key);
  const options = { allowInsecureConnection: true };
  return table
    ? new TableClient(endpoint, table, credential, options)
    : new TableServiceClient(endpoint, credential, options);
}

before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "rowhouse-azurite-"));
  await server.start();
  const port = await freePort();
  const log = openSync(path.join(folder, "azurite.log"), "a");
  const env = { PATH: process.env.PATH, AZURITE_ACCOUNTS: `${NAME}:${KEY}` };
  const args = ["--tablePort", String(port), "--location", folder, "--disableTelemetry", "--silent"];
  azurite = spawn(AZURITE, args, { env, stdio: ["ignore", log, log] });
  closeSync(log);
  const endpoint = `http://127.0.0.1:${port}/${NAME}`;
  const service = client(endpoint, NAME, KEY);
  await until("Azurite's start", () => service.createTable("Ready").then(() => true, () => false));
  await service.deleteTable("Ready");
  azuritePlace = `AccountName=${NAME};AccountKey=${KEY};TableEndpoint=${endpoint}`;
  rowhousePlace = `AccountName=${server.account};AccountKey=${server.keys[0]};TableEndpoint=${server.endpoint}`;
  await client(server.endpoint, server.account, server.keys[0]).createTable("Types");
  const table = client(server.endpoint, server.account, server.keys[0], "Types");
  for (const partitionKey of KEYS) {
    for (const rowKey of KEYS) await table.createEntity({ partitionKey, rowKey, key: partitionKey + rowKey });
  }
  await table.createEntity({
    partitionKey: "types",
    rowKey: "all",
    text: 'x"\\\u0001\n y',
    empty: "",
    yes: true,
    small: -5,
    large: { type: "Int64", value: "9223372036854775807" },
    whole: { type: "Double", value: "3.0" },
    tiny: { type: "Double", value: "1.5E-7" },
    nan: { type: "Double", value: "NaN" },
    infinite: { type: "Double", value: "-Infinity" },
    time: { type: "DateTime", value: "2020-01-02T03:04:05.1234567Z" },
    id: { type: "Guid", value: "0f8fad5b-d9cb-469f-a165-70867728950e" },
    bytes: { type: "Binary", value: "AAEC/w==" },
    中: "文",
  });
  for (let part = 0; part < 12; part++) {
    const rows = Array.from({ length: 100 }, (_, row) => ["create", { partitionKey: "many", rowKey: `${part}-${row}`, row }]);
    await table.submitTransaction(rows);
  }
  // Azurite sorts these by UTF-16 unit, Rowhouse by code point: the second half comes first there.
  for (const first of ["\uffee", "\u{1f600}"]) {
    for (let part = 0; part < 5; part++) {
      const rows = Array.from({ length: 100 }, (_, row) => ["create", { partitionKey: "odd", rowKey: `${first}${part}-${row}` }]);
      await table.submitTransaction(rows);
    }
  }
});

after(async () => {
  azurite?.kill("SIGTERM");
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("entities of every type go to Azurite and come back", async () => {
  const there = await succeeds("copy", rowhousePlace, azuritePlace, "--verify");
  assert.match(there, /2301 equal, 0 missing, 0 extra, 0 different\nequal\n$/);
  await succeeds("copy", azuritePlace, "sqlite://back.db", "--verify");
  await succeeds("verify", rowhousePlace, `sqlite://back.db#${NAME}`);
  const again = JSON.parse(await succeeds("copy", azuritePlace, rowhousePlace, "--json"));
  assert.deepEqual([again.copied, again.unchanged, again.rejected], [0, 2301, 0]);
});

test("what Azurite answers and its file are equal", async () => {
  const file = path.join(folder, "__azurite_db_table__.json");
  const equal = () => rowhouse("verify", file, azuritePlace, "--recheck-delay", "0");
  // Azurite writes the file every five seconds.
  await until("saving the file", async () => existsSync(file) && (await equal()).status === 0);
  await succeeds("copy", `${file}#${NAME}`, "dump:dump");
  await succeeds("verify", "dump:dump", azuritePlace);
});

test("a difference is found and deleted", async () => {
  const { tables, key } = { tables: azuritePlace.split("TableEndpoint=")[1], key: KEY };
  const table = client(tables, NAME, key, "Types");
  await table.createEntity({ partitionKey: "extra", rowKey: "one" });
  await table.deleteEntity("many", "3-7");
  const differs = await rowhouse("verify", rowhousePlace, azuritePlace, "--json", "--recheck-delay", "0");
  assert.equal(differs.status, 4, differs.stderr);
  const kinds = JSON.parse(differs.stdout).differences.map(({ kind, RowKey }) => `${kind} ${RowKey}`);
  assert.deepEqual(kinds, ["extra one", "missing 3-7"]);
  await succeeds("copy", rowhousePlace, azuritePlace, "--mirror", "--verify", "--yes");
});

/** The commands of the first example of docs/how-to/migrate.md. */
function documentedCommands() {
  const example = readFileSync(path.join(REPOSITORY, "docs/how-to/migrate.md"), "utf8").split("```sh\n")[1].split("```")[0];
  const commands = example.split("\n").filter((line) => line && !line.startsWith("export "));
  assert.equal(commands.filter((line) => !line.startsWith("#")).length, 5);
  return commands.join("\n");
}

test("an application moves from Azurite with the documented commands while it writes", async () => {
  const endpoint = azuritePlace.split("TableEndpoint=")[1];
  await client(endpoint, NAME, KEY).createTable("Moving");
  const table = client(endpoint, NAME, KEY, "Moving");
  for (let row = 0; row < 20; row++) await table.createEntity({ partitionKey: "kept", rowKey: String(row), row });
  // The script waits where the page tells its readers to stop the writers, and ends with the way back.
  const script = documentedCommands()
    .replace("follow env:AZURE env:ROWHOUSE &", "follow env:AZURE env:ROWHOUSE --interval 1 > rounds &")
    .replace("# Stop", "until [ -s rounds ]; do sleep 0.1; done; touch may-stop; until [ -e stopped ]; do sleep 0.1; done #")
    .replace("env:AZURE --yes", "env:AZURE --yes --finish");
  const env = {
    PATH: `${path.dirname(BINARY)}:${process.env.PATH}`,
    AZURE: azuritePlace,
    ROWHOUSE: `sqlite://moved.db#${NAME}`,
  };
  const moving = new Promise((resolve) => {
    execFile("bash", ["-ec", script], { cwd: folder, env }, (error, stdout, stderr) =>
      resolve({ status: error ? error.code : 0, stdout, stderr }),
    );
  });
  let isOver = false;
  let written = 0;
  const writer = (async () => {
    for (; !isOver; written++) {
      await table.upsertEntity({ partitionKey: "live", rowKey: String(written % 30), written }, "Replace");
      if (written === 5) await table.deleteEntity("kept", "7");
    }
  })();
  await until("a round", () => existsSync(path.join(folder, "may-stop")));
  isOver = true;
  await writer;
  closeSync(openSync(path.join(folder, "stopped"), "w"));
  const { status, stdout, stderr } = await moving;
  assert.equal(status, 0, `${stdout}${stderr}`);
  assert.ok(written > 5);
  assert.match(readFileSync(path.join(folder, "rounds"), "utf8"), /\nequal\n$/);
  assert.equal(stdout.match(/\nequal\n/g).length, 2, "verify and the way back");
});
