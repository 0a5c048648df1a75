// Starts and stops real Rowhouse servers. The legacy client and the tests of the console use this too.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const REPOSITORY = fileURLToPath(new URL("../../../../", import.meta.url));
export const BINARY = path.resolve(process.env.ROWHOUSE_BIN || path.join(REPOSITORY, "target/debug/rowhouse"));
const READY = /^Rowhouse is ready at (http:\/\/\S+?),? /;
const START_MILLISECONDS = 60_000;
const STOP_MILLISECONDS = 40_000;
const COMMAND_MILLISECONDS = 60_000;

/** One server process on a free port, with an account that nobody used before. */
export class Server {
  account = "js" + randomBytes(8).toString("hex");
  keys = [newKey(), newKey()];
  /** More settings, by the names of their variables. */
  settings = {};

  async start() {
    this.folder ??= mkdtempSync(path.join(tmpdir(), "rowhouse-js-"));
    this.log = path.join(this.folder, "server.log");
    // The settings of whoever runs the tests must not leak in.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(ROWHOUSE_|DATABASE_URL)/.test(name)));
    env.DATABASE_URL = process.env.DATABASE_URL || `sqlite://${path.join(this.folder, "rowhouse.db")}`;
    env.ROWHOUSE_LISTEN = "127.0.0.1:0";
    env.ROWHOUSE_ACCOUNTS = `${this.account}:${this.keys.join(":")}`;
    Object.assign(env, this.settings);
    this.environment = env;
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

  /** Runs a command of an operator with the same settings. */
  async command(...words) {
    const options = { cwd: this.folder, env: this.environment, timeout: COMMAND_MILLISECONDS };
    await promisify(execFile)(BINARY, words, options);
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
}

export function newKey() {
  return randomBytes(64).toString("base64");
}

/** Starts a server for the tests of one file, and stops it after them. */
export function serverForThisFile(server) {
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
