"use strict";
// Servers for tests. See index.d.ts.

const { spawn } = require("node:child_process");
const path = require("node:path");
const { createInterface } = require("node:readline");

const CONNECTION_STRING = /^Connection string.*: (\S+)$/;
const OPERATORS = /operators are answered at (http:\/\/\S+)/;
// Settings of whoever runs the tests must not leak in.
const SETTING = /^(ROWHOUSE_|DATABASE_URL|OTEL_)/;
const START_MS = 60_000;
const STOP_MS = 30_000;
const LOG_LINES = 100;

function binary() {
  const platform = `${process.platform}-${process.arch}`;
  try {
    return require.resolve(`@rowhouse/${platform}/bin/rowhouse`);
  } catch {
    throw new Error(
      `rowhouse: the package @rowhouse/${platform} is not installed. There is one for linux-x64 and linux-arm64; ` +
        "npm leaves it out with --omit=optional.",
    );
  }
}

// Files are relative to the folder of the tests, not to ours.
function absolute(url) {
  const file = /^sqlite:\/\/([^/:?][^?]*)(.*)$/.exec(url);
  return file ? `sqlite://${path.resolve(file[1])}${file[2]}` : url;
}

class Server {
  #child;
  #ended;
  #log = [];

  constructor({ databaseUrl = "sqlite::memory:", port = 0, adminPort = 0, arguments: more = [], env = {} }) {
    const inherited = Object.entries(process.env).filter(([name]) => !SETTING.test(name));
    const settings = [
      "serve",
      "--until-stdin-closes",
      "--test-mode",
      ...["--listen", `127.0.0.1:${port}`],
      ...["--admin-listen", `127.0.0.1:${adminPort}`],
      ...["--database-url", absolute(databaseUrl)],
      ...["--shutdown-seconds", "0"],
      ...["--log-format", "text"],
    ];
    // Our folder has no .env.
    this.#child = spawn(binary(), [...settings, ...more], {
      cwd: __dirname,
      env: { ...Object.fromEntries(inherited), ROWHOUSE_CONSOLE: "off", ...env },
      stdio: "pipe",
    });
    // Of a server that has ended already.
    this.#child.stdin.on("error", () => {});
    this.#ended = new Promise((resolve) => {
      this.#child.once("error", (error) => resolve(error.message));
      this.#child.once("close", (code, signal) => resolve(`it ended with ${signal ?? code}`));
    });
  }

  get pid() {
    return this.#child.pid;
  }

  async ready(timeout) {
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, timeout, `it took longer than ${timeout} ms`);
    });
    try {
      const problem = await Promise.race([this.#addresses(), this.#ended, late]);
      if (problem !== undefined) {
        await this.#kill();
        throw new Error(`rowhouse did not start: ${problem}\n${this.#log.join("\n")}`);
      }
    } finally {
      clearTimeout(timer);
    }
    this.#hold("unref");
    return this;
  }

  // Tests that forget to stop it may end, which ends it.
  #hold(how) {
    for (const handle of [this.#child, this.#child.stdin, this.#child.stdout, this.#child.stderr]) {
      handle[how]();
    }
  }

  async #addresses() {
    const announced = new Promise((resolve) => {
      createInterface(this.#child.stdout).on("line", (line) => {
        const found = CONNECTION_STRING.exec(line);
        if (found) resolve(found[1]);
      });
    });
    const admin = new Promise((resolve) => {
      createInterface(this.#child.stderr).on("line", (line) => {
        this.#log.push(line);
        if (this.#log.length > LOG_LINES) this.#log.shift();
        const found = OPERATORS.exec(line);
        if (found) resolve(found[1]);
      });
    });
    this.connectionString = await announced;
    this.endpoint = /TableEndpoint=([^;]+)/.exec(this.connectionString)[1];
    this.adminUrl = await admin;
  }

  async reset() {
    await this.#order("POST", "reset");
  }

  async snapshot() {
    return (await this.#order("POST", "snapshots")).name;
  }

  async restore(name) {
    await this.#order("POST", `snapshots/${encodeURIComponent(name)}/restore`);
  }

  async setFaults(rules) {
    await this.#order("PUT", "faults", rules);
  }

  async faults() {
    const { rules } = await this.#order("GET", "faults");
    return rules.map(({ matched, hits }) => ({ matched, hits }));
  }

  async #order(method, what, document) {
    const body = document && JSON.stringify(document);
    const answer = await fetch(`${this.adminUrl}/test/${what}`, { method, body });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`rowhouse refused ${method} /test/${what}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  async stop() {
    this.#hold("ref");
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  async #kill() {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }
}

async function start(options = {}) {
  return new Server(options).ready(options.timeout ?? START_MS);
}

module.exports = { binary, start };
