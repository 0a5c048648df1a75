// Starts and stops real Rowhouse servers, and connects to them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";

const REPOSITORY = fileURLToPath(new URL("../../../../", import.meta.url));
const BINARY = path.resolve(process.env.ROWHOUSE_BIN || path.join(REPOSITORY, "target/debug/rowhouse"));
const READY = /^Rowhouse is ready at (http:\/\/\S+?),? /;
const START_MILLISECONDS = 60_000;
const STOP_MILLISECONDS = 40_000;

// The SDK refuses http unless told so, and never trying again hides no failure.
export const OPTIONS = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

/** One server process on a free port, with an account that nobody used before. */
class Server {
  account = "js" + randomBytes(8).toString("hex");
  keys = [newKey(), newKey()];

  async start() {
    this.folder = mkdtempSync(path.join(tmpdir(), "rowhouse-js-"));
    this.log = path.join(this.folder, "server.log");
    // The settings of whoever runs the tests must not leak in.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(ROWHOUSE_|DATABASE_URL)/.test(name)));
    env.DATABASE_URL = process.env.DATABASE_URL || `sqlite://${path.join(this.folder, "rowhouse.db")}`;
    env.ROWHOUSE_LISTEN = "127.0.0.1:0";
    env.ROWHOUSE_ACCOUNTS = `${this.account}:${this.keys.join(":")}`;
    const log = openSync(this.log, "a");
    this.process = spawn(BINARY, { cwd: this.folder, env, stdio: ["ignore", "pipe", log] });
    closeSync(log);
    const lines = createInterface({ input: this.process.stdout });
    const first = await Promise.race([
      once(lines, "line").then(([line]) => line),
      once(this.process, "exit").then(() => ""),
      new Promise((resolve) => setTimeout(resolve, START_MILLISECONDS, "").unref()),
    ]);
    const found = READY.exec(first);
    if (!found) {
      this.process.kill("SIGKILL");
      throw new Error(`the server did not become ready; it printed "${first}" and logged:\n${readFileSync(this.log)}`);
    }
    this.origin = found[1];
    this.port = Number(new URL(this.origin).port);
    this.endpoint = `${this.origin}/${this.account}`;
    return this;
  }

  async stop() {
    const log = () => readFileSync(this.log, "utf8");
    assert.equal(this.process.exitCode, null, `the server died:\n${log()}`);
    const ended = once(this.process, "exit");
    this.process.kill("SIGTERM");
    const timer = setTimeout(() => this.process.kill("SIGKILL"), STOP_MILLISECONDS);
    const [status] = await ended;
    clearTimeout(timer);
    const failures = log().split("\n").filter((line) => /ERROR|panicked/.test(line));
    rmSync(this.folder, { recursive: true });
    assert.equal(status, 0);
    assert.deepEqual(failures, []);
  }

  credential(key = 0) {
    return new AzureNamedKeyCredential(this.account, this.keys[key]);
  }

  service(credential = this.credential(), options = {}) {
    return new TableServiceClient(this.endpoint, credential, { ...OPTIONS, ...options });
  }

  table(name, credential = this.credential(), options = {}) {
    return new TableClient(this.endpoint, name, credential, { ...OPTIONS, ...options });
  }
}

export function newKey() {
  return randomBytes(64).toString("base64");
}

/** A server for the tests of one file, which start it and stop it. */
export function serverForThisFile() {
  const server = new Server();
  before(() => server.start());
  after(() => server.stop());
  return server;
}

let number = 0;

/** A table name that no other test uses. */
export function newName(prefix = "T") {
  number += 1;
  return `${prefix}${process.pid}x${String(number).padStart(4, "0")}`;
}

/** Makes a table, hands its client to the test, and deletes it. */
export async function withTable(server, test) {
  const table = server.table(newName());
  await table.createTable();
  try {
    await test(table);
  } finally {
    await table.deleteTable();
  }
}

export async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

/** The status and the service's code of the failure that `attempt` ends in. */
export async function refusal(attempt) {
  let error;
  try {
    await attempt();
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, "nothing was refused");
  return [error.statusCode, codeOf(error)];
}

/** The service's code, which the SDK keeps elsewhere for JSON than for XML. */
export function codeOf(error) {
  return error.code ?? error.details?.odataError?.code ?? error.details?.errorCode;
}

/** What of an entity its writer wrote. */
export function written(entity) {
  const { etag, timestamp, ...rest } = entity;
  delete rest["odata.metadata"];
  return rest;
}
