// Starts servers with an admin listener, and uses their console in a real Chromium.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { after, afterEach, before } from "node:test";
import { chromium } from "playwright-core";
import * as base from "../../javascript/tests/server.js";

export { BINARY, newName } from "../../javascript/tests/server.js";

export const TOKEN = "a-token-of-the-tests";
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
export const ARGUMENTS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const ADMIN = /operators are answered at (http:\/\/[\d.:]+)/g;
/** The longest wait for something to appear. */
export const PATIENCE = 60_000;

/** A server whose admin listener has a token. */
export class Server extends base.Server {
  /** @param {Record<string, string>} settings more of them */
  constructor(settings = {}) {
    super();
    this.settings = {
      ROWHOUSE_ADMIN_LISTEN: "127.0.0.1:0",
      ROWHOUSE_ADMIN_TOKEN: TOKEN,
      ROWHOUSE_MASTER_KEY: MASTER_KEY,
      ROWHOUSE_TEST_MODE: "true",
      ...settings,
    };
  }

  async start() {
    const end = Date.now() + PATIENCE;
    for (;;) {
      try {
        await super.start();
        break;
      } catch (error) {
        // After a kill, others may have its port for a while.
        if (!/cannot listen on .*\s*$/.test(error.message) || Date.now() > end) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    this.admin = [...readFileSync(this.log, "utf8").matchAll(ADMIN)].pop()[1];
    return this;
  }

  /** Ends without a word. It starts again at the same addresses. */
  async kill() {
    Object.assign(this.settings, {
      ROWHOUSE_LISTEN: new URL(this.origin).host,
      ROWHOUSE_ADMIN_LISTEN: new URL(this.admin).host,
    });
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await ended;
  }

  /** Sends a request of the Table protocol as an operator: what a test prepares and checks. */
  async send(method, address, { body, headers = {}, account = this.account } = {}) {
    const common = {
      authorization: `Bearer ${TOKEN}`,
      "x-ms-version": "2019-02-02",
      "content-type": "application/json",
      accept: "application/json;odata=fullmetadata",
    };
    const response = await fetch(`${this.admin}/service/${account}/${address}`, {
      method,
      body,
      headers: { ...common, ...headers },
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${address}: ${response.status} ${text}`);
    return text;
  }

  /** Makes a table with these entities: objects, or texts of JSON. */
  async table(entities = []) {
    const name = base.newName();
    await this.send("POST", "Tables", { body: JSON.stringify({ TableName: name }) });
    for (const entity of entities)
      await this.send("POST", name, { body: typeof entity === "string" ? entity : JSON.stringify(entity) });
    return name;
  }

  /** The entities of a table, as JSON.parse reads them. */
  async entities(table, query = "") {
    return JSON.parse(await this.send("GET", `${table}()?${query}`)).value;
  }

  /** Writes many entities of a partition, in change sets of 100. `make` returns what the one of a number has besides its keys. */
  async fill(table, count, make, partition = "p") {
    for (let from = 0; from < count; from += 100) {
      const parts = [];
      for (let index = from; index < Math.min(count, from + 100); index += 1) {
        const body = JSON.stringify({
          PartitionKey: partition,
          RowKey: String(index).padStart(7, "0"),
          ...make(index),
        });
        parts.push(
          `--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nPOST /${this.account}/${table} HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: return-no-content\r\n\r\n${body}\r\n`,
        );
      }
      const body = `--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n${parts.join("")}--c--\r\n--b--\r\n`;
      const answer = await this.send("POST", "$batch", {
        body,
        headers: { "content-type": "multipart/mixed; boundary=b" },
      });
      assert.doesNotMatch(answer, /^HTTP\/1\.1 4/m);
    }
  }
}

/** A browser and a server, for the tests of one file. */
export function consoleForThisFile(settings = {}) {
  const our = { server: new Server(settings), browser: null, windows: [] };
  before(async () => {
    await our.server.start();
    our.browser = await chromium.launch({
      executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
      args: ARGUMENTS,
    });
  });
  afterEach(async () => {
    const windows = our.windows.splice(0);
    for (const { page } of windows) await page.context().close();
    assert.deepEqual(
      windows.flatMap(({ faults }) => faults),
      [],
    );
  });
  after(async () => {
    await our.browser?.close();
    await our.server.stop();
  });
  return our;
}

/** Opens the console in a window of its own, signed in unless `token` is empty. Errors of its scripts fail the test. */
export async function open(
  our,
  hash = "",
  { address = our.server.admin, width = 1280, height = 800, scheme = "light", token = TOKEN, isLost = false } = {},
) {
  const context = await our.browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    acceptDownloads: true,
    ignoreHTTPSErrors: true,
    permissions: ["clipboard-read", "clipboard-write"],
  });
  context.setDefaultTimeout(PATIENCE);
  if (token) await context.addInitScript((text) => sessionStorage.setItem("rowhouse-token", text), token);
  const page = await context.newPage();
  watch(our, page, isLost);
  await page.goto(`${address}/console/${hash}`);
  return page;
}

/** The browser reports every refused request, and some tests are about those. */
function watch(our, page, isLost) {
  const faults = [];
  const expected = isLost
    ? /Failed to load resource/
    : /Failed to load resource: the server responded with a status of 4/;
  page.on("pageerror", (error) => faults.push(String(error.stack)));
  page.on(
    "console",
    (message) => message.type() === "error" && !expected.test(message.text()) && faults.push(message.text()),
  );
  page.on("dialog", (dialog) => faults.push(`a script opened a dialog: ${dialog.message()}`));
  our.windows.push({ page, faults });
}

/** Opens a table, and waits for its first page. */
export async function openTable(our, table, options) {
  const page = await open(our, `#/entities/${our.server.account}/${table}`, options);
  await page.getByRole("button", { name: "Stop" }).waitFor({ state: "hidden" });
  await page.locator("data-grid[aria-busy=false]").waitFor({ state: "attached" });
  return page;
}

/** Ticks or unticks a row: a table by its name, an entity by `PartitionKey / RowKey`. */
export async function tick(page, name) {
  await page.getByRole("checkbox", { name: `Select ${name}`, exact: true }).click();
}

/** The cell of a row (from 0) and a column, by its title. */
export async function cell(page, row, title) {
  const header = page
    .getByRole("columnheader")
    .filter({ has: page.locator(".grid-title", { hasText: new RegExp(`^${title}$`) }) });
  const index = await header.getAttribute("aria-colindex");
  return page.locator(`.grid-row[aria-rowindex="${row + 2}"] .grid-cell[aria-colindex="${index}"]`);
}

/** The texts of a column, as far as its rows are in sight. */
export async function column(page, title) {
  const header = page
    .getByRole("columnheader")
    .filter({ has: page.locator(".grid-title", { hasText: new RegExp(`^${title}$`) }) });
  const index = await header.getAttribute("aria-colindex");
  return page.locator(`.grid-row .grid-cell[aria-colindex="${index}"]`).allTextContents();
}

/** Keeps a picture of a page, where ROWHOUSE_SCREENSHOTS names a folder. */
export async function picture(page, name) {
  const folder = process.env.ROWHOUSE_SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.png`), animations: "disabled" });
}

/** Holds the requests of an address after the first ones until they are let go. */
export async function held(page, address, first = 0) {
  let letGo = () => {};
  const gone = new Promise((resolve) => (letGo = resolve));
  let sent = 0;
  await page.route(address, async (route) => {
    sent += 1;
    if (sent > first) await gone;
    // It may have been cancelled meanwhile.
    await route.continue().catch(() => {});
  });
  return letGo;
}

/** Waits until what is read is as expected. */
export async function eventually(read, expected) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await read();
    try {
      return assert.deepEqual(found, expected);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
