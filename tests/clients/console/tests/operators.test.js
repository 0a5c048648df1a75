// What operators do besides entities: signing in, accounts, tables, policies, service properties, SAS tokens, live figures, test mode.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { BINARY, column, consoleForThisFile, eventually, held, newName, open, openTable, picture, tick, TOKEN } from "./console.js";

const our = consoleForThisFile();
const dialog = (page) => page.getByRole("dialog");

test("the token is asked for, kept for the tab, and forgotten on demand", async () => {
  const page = await open(our, "", { token: "" });
  await page.getByLabel("Admin token").fill("another-token-entirely");
  await page.keyboard.press("Enter");
  await page.getByText("This is not the token of this server.").waitFor();
  await picture(page, "sign-in");
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(page.url());
  await other.getByLabel("Admin token").waitFor();
  assert.equal((await page.context().cookies()).length, 0);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Admin token").waitFor();
});

test("an address with the token signs in, and keeps no token", async () => {
  const page = await open(our, `#token=${TOKEN}`, { token: "" });
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  assert.equal(page.url(), `${our.server.admin}/console/#/`);
  await page.reload();
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  // The page is open already when somebody enters the address of another server's start.
  await page.goto(`${our.server.admin}/console/#token=another-token-entirely`);
  await page.getByRole("alert").getByText("The token in the address: This is not the token of this server.").waitFor();
  assert.equal(page.url(), `${our.server.admin}/console/#/`);
  await picture(page, "sign-in-address");
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  // Nothing of the token is in the history.
  await page.goBack();
  assert.doesNotMatch(page.url(), /token=/);
});

test("the address that a server prints at a terminal opens the console", async () => {
  // This program gives the server a terminal.
  const command = `${BINARY} serve --listen 127.0.0.1:0 --database-url sqlite::memory:`;
  const env = { PATH: process.env.PATH };
  const terminal = spawn("script", ["-qec", command, "/dev/null"], { stdio: ["pipe", "pipe", "inherit"], env });
  try {
    let printed = null;
    for await (const line of createInterface({ input: terminal.stdout })) {
      printed = /^Console: (http:\S+)\/console\/(#token=\S+)$/.exec(line.trim());
      if (printed) break;
    }
    const page = await open(our, printed[2], { address: printed[1], token: "" });
    await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
    assert.ok(!page.url().includes("token"), page.url());
    await page.goto(printed[1]);
    await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  } finally {
    terminal.kill();
  }
});

test("all panes together load less than 200 KiB", async () => {
  const page = await open(our, "");
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  const devtools = await page.context().newCDPSession(page);
  let received = 0;
  devtools.on("Network.loadingFinished", ({ encodedDataLength }) => {
    received += encodedDataLength;
  });
  await devtools.send("Network.enable");
  await devtools.send("Network.setCacheDisabled", { cacheDisabled: true });
  await page.reload();
  for (const pane of ["tables", "entities", "sas-tokens", "service", "activity", "requests", "accounts", "snapshots"]) {
    await page.goto(`${our.server.admin}/console/#/${pane}/${our.server.account}`);
    await page.locator(`main[data-pane=${pane}]`).waitFor();
    await page.waitForLoadState("networkidle");
  }
  assert.ok(received > 20 * 1024 && received <= 200 * 1024, `${received} bytes`);
});

test("an account is added, limited, rotated, disabled, enabled and removed", async () => {
  const name = `new${process.pid}${Date.now() % 1e6}`;
  const page = await open(our, "#/accounts");
  await page.getByRole("button", { name: "Add account" }).click();
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await dialog(page).getByText("Copy them now").waitFor();
  const string = await page
    .getByLabel(/^Connection string/)
    .first()
    .inputValue();
  assert.match(string, new RegExp(`AccountName=${name};AccountKey=`));
  await page.getByRole("button", { name: "Copy Key 1" }).click();
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await eventually(async () => Buffer.from(await copied(), "base64").length, 64);
  await picture(page, "account-keys");
  await dialog(page).getByRole("button", { name: "Close" }).click();

  await page.getByRole("button", { name: `Limit ${name}` }).click();
  await page.getByLabel("Requests per second").fill("250");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("250 requests a second").waitFor();

  await page.getByRole("button", { name: `Extended queries of ${name}` }).click();
  await dialog(page).getByLabel("Extended", { exact: true }).check();
  await page.getByRole("button", { name: "Save" }).click();
  const queries = page.getByRole("article").filter({ hasText: name }).getByText("extended", { exact: true });
  await queries.waitFor();

  const card = page.getByRole("article").filter({ has: page.getByRole("heading", { name, exact: true }) });
  const shown = await card.elementHandle();
  await page.getByRole("button", { name: `Rotate key of ${name}` }).click();
  await page.getByLabel("Key 2").check();
  await page.getByLabel(`Type ${name} to confirm`).fill(name);
  await page.getByRole("button", { name: "Rotate", exact: true }).click();
  await page.getByRole("heading", { name: `New key 2 of ${name}` }).waitFor();
  await dialog(page).getByRole("button", { name: "Close" }).click();
  // The cards are read again, and a click on one that is replaced is lost.
  await shown.waitForElementState("hidden");

  await page.getByRole("button", { name: `Disable ${name}` }).click();
  await page.getByLabel(`Type ${name} to confirm`).fill(name);
  await dialog(page).getByRole("button", { name: "Disable" }).click();
  await card.getByText("disabled").waitFor();
  await picture(page, "accounts");
  await page.getByRole("button", { name: `Enable ${name}` }).click();
  await page.getByRole("button", { name: `Disable ${name}` }).waitFor();
  await page.getByRole("button", { name: `Remove ${name}` }).click();
  await page.getByLabel(`Type ${name} to confirm`).fill(name);
  await dialog(page).getByRole("button", { name: "Remove" }).click();
  await card.waitFor({ state: "detached" });
});

test("tables are created, measured, found, and deleted several at once", async () => {
  const [first, second, third] = ["A", "B", "C"].map((letter) => newName(`Many${letter}`));
  const page = await open(our, `#/tables/${our.server.account}`);
  for (const name of [first, second, third]) {
    await page.getByRole("button", { name: "Create table" }).first().click();
    await page.getByLabel("Name").fill(name);
    await page.getByRole("button", { name: "Create", exact: true }).click();
    await dialog(page).waitFor({ state: "detached" });
  }
  await our.server.fill(first, 1200, () => ({ Text: "x".repeat(100) }));
  await page.reload();
  await page.getByText("1,200", { exact: true }).waitFor();
  await picture(page, "tables");
  await page.getByLabel("Find a table").fill("many");
  for (const name of [first, third]) await page.getByRole("checkbox", { name: `Select ${name}` }).click();
  await page.getByRole("button", { name: "Delete selected" }).click();
  await page.getByLabel("Type 2 tables to confirm").fill("2 tables");
  await picture(page, "tables-delete");
  await dialog(page).getByRole("button", { name: "Delete" }).click();
  await page.getByText("2 deleted.").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await eventually(() => column(page, "Table"), [second]);
});

test("a name that is refused is explained", async () => {
  const page = await open(our, `#/tables/${our.server.account}`);
  await page.getByRole("button", { name: "Create table" }).first().click();
  await page.getByLabel("Name").fill("1x");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page
    .getByRole("alert")
    .getByText(/OutOfRangeInput|InvalidResourceName/)
    .waitFor();
});

test("policies of a table are edited", async () => {
  const table = await our.server.table();
  const page = await open(our, `#/tables/${our.server.account}`);
  await tick(page, table);
  await page.getByRole("button", { name: "Policies" }).click();
  await page.getByRole("button", { name: "Add policy" }).click();
  await page.getByLabel("Id").fill("<readers & co>");
  await page.getByLabel("Expiry").fill("2030-01-01T00:00:00Z");
  await page.getByLabel("Permissions").fill("ra");
  await picture(page, "policies");
  await page.getByRole("button", { name: "Save" }).click();
  await dialog(page).waitFor({ state: "detached" });
  const acl = await our.server.send("GET", `${table}?comp=acl`, { headers: { accept: "application/xml" } });
  assert.match(acl, /<Id>&lt;readers &amp; co&gt;<\/Id>/);
  await page.getByRole("button", { name: "Policies" }).click();
  await page.getByRole("button", { name: /^Remove policy/ }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await dialog(page).waitFor({ state: "detached" });
  assert.doesNotMatch(
    await our.server.send("GET", `${table}?comp=acl`, { headers: { accept: "application/xml" } }),
    /<Id>/,
  );
});

test("CORS rules are edited as a form and as XML, and a wrong one is refused in words", async () => {
  const page = await open(our, `#/service/${our.server.account}`);
  await page.getByText(/^No rules/).waitFor();
  const [saveRules, saveDocument] = ["rules", "document"].map((what) =>
    page.getByRole("button", { name: `Save ${what}` }),
  );
  assert.ok((await saveRules.isDisabled()) && (await saveDocument.isDisabled()));
  await page.getByRole("button", { name: "Add rule" }).click();
  assert.ok(await saveRules.isEnabled());
  await page.getByLabel("Origins").fill("https://app.example");
  await page.getByLabel("Methods").fill("GET,PUT");
  await page.getByRole("button", { name: "Save rules" }).click();
  await page.getByText("Saved.").waitFor();
  await picture(page, "service-properties");
  assert.match(
    await page.getByLabel("Service properties (XML)").inputValue(),
    /\n {6}<AllowedOrigins>https:\/\/app\.example<\/AllowedOrigins>/,
  );
  await page.getByLabel("Methods").fill("JUMP");
  await page.getByRole("button", { name: "Save rules" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Remove rule https://app.example" }).click();
  await page.getByRole("button", { name: "Save rules" }).click();
  await page.getByText(/^No rules/).waitFor();
});

test("a SAS token is built, works, and an inspector says why one is refused", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r" }]);
  const page = await open(our, `#/sas-tokens/${our.server.account}`);
  await page.getByLabel("Table", { exact: true }).fill(table);
  await page.getByRole("button", { name: "Build" }).click();
  const url = await page.getByLabel("Address", { exact: true }).inputValue();
  const answer = await fetch(url, { headers: { accept: "application/json;odata=nometadata" } });
  assert.equal(answer.status, 200);
  await page.getByRole("button", { name: "Inspect" }).click();
  await page.getByText("Valid", { exact: true }).waitFor();
  await page.getByText("May", { exact: true }).waitFor();
  await picture(page, "sas-tokens");
  await page.getByLabel("Method").selectOption("POST");
  await page.getByRole("button", { name: "Inspect" }).click();
  await page.getByText("May not", { exact: true }).waitFor();
  await page.getByLabel("Address or token").fill(url.replace(/sig=[^&]*/, "sig=AAAA"));
  assert.equal(await page.locator("sas-inspector .badge").count(), 0);
  await page.getByRole("button", { name: "Inspect" }).click();
  await page.getByText("Refused", { exact: true }).waitFor();
  // A token that is refused is not praised for what it would allow.
  await page.getByLabel("Method").selectOption("GET");
  await page.getByRole("button", { name: "Inspect" }).click();
  await page.getByText("Its permissions include: read entities.").waitFor();
  assert.equal(await page.locator("sas-inspector .badge.good").count(), 0);
});

test("a built token goes when the form says something else", async () => {
  const table = await our.server.table();
  const page = await open(our, `#/sas-tokens/${our.server.account}`);
  const token = page.getByLabel("Token", { exact: true });
  const build = async () => {
    await page.getByRole("button", { name: "Build" }).click();
    await token.waitFor();
  };
  await page.getByLabel("Table", { exact: true }).fill(table);
  await build();
  await page.getByLabel("add", { exact: true }).check();
  assert.equal(await token.count(), 0);
  await build();
  await page.getByLabel("Expires").fill("1h");
  assert.equal(await token.count(), 0);
  await build();
  await page.getByLabel("For", { exact: true }).selectOption("account");
  assert.equal(await token.count(), 0);
  // An answer that comes after a change is not shown either.
  const letGo = await held(page, "**/sas");
  await page.getByRole("button", { name: "Build" }).click();
  const answered = page.waitForResponse("**/sas");
  await page.getByLabel("Expires").fill("2h");
  letGo();
  await (await answered).finished();
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
  assert.equal(await token.count(), 0);
});

test("a filter is explained, and measured", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 300, (index) => ({ Age: index }));
  const page = await openTable(our, table);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("Whole table").waitFor();
  await page.getByLabel("Filter").fill("PartitionKey eq 'p' and Age ge 290");
  await page.getByText("One partition").waitFor();
  await page.getByRole("button", { name: "Measure" }).click();
  await page.getByText("Examined").waitFor();
  assert.equal(await page.locator("explain-view dt:text-is('Returned') + dd").textContent(), "10");
  await picture(page, "explain");
  await page.getByLabel("Filter").fill("Age ge");
  await page.locator("explain-view .wrong").waitFor();
});

test("requests appear as they are answered, and are found by status and text", async () => {
  const table = await our.server.table();
  await our.server.entities(table);
  const page = await open(our, "#/requests");
  await page.locator(".grid-row").first().waitFor();
  const missing = newName("Missing");
  assert.equal(
    (
      await fetch(`${our.server.admin}/service/${our.server.account}/${missing}()`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      })
    ).status,
    404,
  );
  await page.getByRole("gridcell", { name: missing }).first().waitFor();
  await page.getByLabel("Status").selectOption("4");
  await page.getByLabel("Find").fill(missing.toLowerCase());
  await eventually(async () => [...new Set(await column(page, "Error"))], ["TableNotFound"]);
  await picture(page, "requests");
  // All that matters is in sight, and the rest is a double click away.
  for (const title of ["Reason", "Request ID"]) {
    const { x, width } = await page.getByRole("columnheader", { name: title }).boundingBox();
    assert.ok(x + width <= 1280, title);
  }
  await page.getByRole("gridcell", { name: missing }).first().dblclick();
  const details = page.getByRole("dialog", { name: "Request" });
  await details.getByText("404 TableNotFound").waitFor();
  assert.match(await details.getByLabel("Request ID", { exact: true }).inputValue(), /^[0-9a-f-]{36}$/);
  await picture(page, "request");
  await page.keyboard.press("Escape");
  // What the console itself asks for is told from what clients do.
  await page.getByLabel("From").selectOption("client");
  await page.getByText("Nothing matches").waitFor();
  assert.equal((await fetch(`${our.server.endpoint}/${missing}()`)).ok, false);
  await eventually(async () => [...new Set(await column(page, "From"))], ["client"]);
  await page.getByLabel("From").selectOption("");
  await page.getByLabel("Status").selectOption("2");
  await page.getByText("Nothing matches").waitFor();
  await page.getByLabel("Find").fill(table);
  await eventually(async () => (await column(page, "Status")).every((status) => status.startsWith("2")), true);
});

test("what the server did is drawn", async () => {
  const page = await open(our, "#/activity");
  const rate = page.getByRole("img", { name: /^Requests per second, now: all [\d.]+$/ });
  await rate.waitFor();
  await page.getByRole("img", { name: /^Latency, now: p99 [\d.]+ ms, median [\d.]+ ms$/ }).waitFor();
  assert.ok((await rate.locator(".chart-line").count()) > 0);
  await page.getByText(/^The last \d+ (seconds|minutes) of this server$/).waitFor();
  const steps = await rate.locator(".chart-text[text-anchor=end]").allTextContents();
  assert.equal(new Set(steps).size, steps.length, steps.join());
  await picture(page, "activity");
});

test("a table that is deleted leaves the picture of sizes", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", Text: "x".repeat(30_000) }]);
  const page = await open(our, "#/activity");
  const sizes = page.getByRole("img", { name: /^Largest tables/ });
  const isDrawn = async () => (await sizes.getAttribute("aria-label")).includes(table);
  await eventually(isDrawn, true);
  await our.server.send("DELETE", `Tables('${table}')`);
  await page.reload();
  await eventually(isDrawn, false);
});

test("the nodes of a cluster are shown, and which of them are silent", async () => {
  const answers = { holdsShards: true, answers: true, inRecovery: false, standbys: 1, shards: 16, bytes: 4096 };
  const nodes = [
    { address: "coordinator:5432", group: 0, role: "coordinator", ...answers, entitiesAbout: 0, holdsShards: false },
    { address: "worker-1:5432", group: 1, role: "worker", ...answers, entitiesAbout: 1200 },
    { address: "worker-2:5432", group: 2, role: "worker", holdsShards: true, answers: false, reason: "timeout" },
  ];
  const server = { silentNodes: 1, substitutedLanes: 2, bucketMapRead: "2026-01-02T03:04:05Z" };
  const page = await open(our, "#/activity");
  await page.route("**/cluster", (route) =>
    route.fulfill({ json: { citus: "13.0.5", nodes, unused: ["standby:5432"], server } }),
  );
  await page.reload();
  await page.getByRole("heading", { name: "Nodes" }).waitFor();
  await page.getByText(/worker · 16 shards · about 1,200 entities/).waitFor();
  await page.getByText("worker · does not answer: timeout").waitFor();
  await page.getByText(/it refuses what needs 1 of them · 2 of its lanes use another node/).waitFor();
  await page.getByText("Standbys, or disabled: standby:5432").waitFor();
  await picture(page, "nodes");
});

test("snapshots are taken and restored, and a reset asks first", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r" }]);
  const page = await open(our, "#/snapshots");
  await page.getByLabel("Accounts").selectOption(our.server.account);
  await page.getByRole("button", { name: "Take snapshot" }).click();
  await page.getByText("Taken.", { exact: true }).waitFor();
  await picture(page, "snapshots");
  const restore = page.getByRole("button", { name: /^Restore / });
  let shown = await restore.elementHandle();
  await page.getByRole("button", { name: "Reset" }).click();
  await page.getByLabel(`Type ${our.server.account} to confirm`).fill(our.server.account);
  await dialog(page).getByRole("button", { name: "Reset" }).click();
  await page.getByText("Reset.", { exact: true }).waitFor();
  assert.deepEqual(JSON.parse(await our.server.send("GET", "Tables")).value, []);
  // The list is read again after each change, and a click on what it replaces is lost.
  await shown.waitForElementState("hidden");
  shown = await restore.elementHandle();
  await restore.click();
  await page.getByText("Restored.", { exact: true }).waitFor();
  assert.equal((await our.server.entities(table)).length, 1);
  await shown.waitForElementState("hidden");
  await page.getByRole("button", { name: /^Delete / }).click();
  await page.getByText("No snapshots yet").waitFor();
});
