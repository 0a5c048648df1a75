// What is not done, or not known, is not shown as done.

import assert from "node:assert/strict";
import { test } from "node:test";
import { column, consoleForThisFile, eventually, held, newName, open, openTable, tick, TOKEN } from "./console.js";

const our = consoleForThisFile();

test("a SAS token for one table needs its name", async () => {
  const page = await open(our, `#/sas-tokens/${our.server.account}`);
  await page.getByRole("button", { name: "Build" }).click();
  await page
    .getByRole("alert")
    .getByText(/is not the name of a table/)
    .waitFor();
  assert.equal(await page.getByLabel("Address", { exact: true }).count(), 0);
});

test("policies that were not read cannot be saved", async () => {
  const table = await our.server.table();
  const policy =
    "<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";
  await our.server.send("PUT", `${table}?comp=acl`, {
    body: policy,
    headers: { "content-type": "application/xml", accept: "application/xml" },
  });
  const page = await open(our, `#/tables/${our.server.account}`);
  await tick(page, table);
  const letGo = await held(page, "**/*comp=acl*");
  await page.getByRole("button", { name: "Policies" }).click();
  await page.getByRole("dialog").waitFor();
  assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
  assert.equal(await page.getByRole("button", { name: "Add policy" }).count(), 0);
  letGo();
  await page.getByRole("button", { name: "Remove policy readers" }).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const acl = await our.server.send("GET", `${table}?comp=acl`, { headers: { accept: "application/xml" } });
  assert.match(acl, /<Id>readers<\/Id>/);
});

test("a new key is shown even to those who wanted to leave", async () => {
  const name = newName("acct").toLowerCase().slice(0, 24);
  const page = await open(our, "#/accounts");
  await page.getByRole("button", { name: "Add account" }).first().click();
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("heading", { name: `Keys of ${name}` }).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  const letGo = await held(page, "**/rotate");
  await page.getByRole("button", { name: `Rotate key of ${name}` }).click();
  await page.getByLabel(`Type ${name} to confirm`).fill(name);
  await page.getByRole("button", { name: "Rotate", exact: true }).click();
  assert.ok(await page.getByRole("button", { name: "Cancel" }).isDisabled());
  // Browsers let the second one close the dialog.
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  letGo();
  await page.getByRole("heading", { name: `New key 1 of ${name}` }).waitFor();
});

test("why an action failed is shown even to those who wanted to leave", async () => {
  const name = newName();
  const page = await open(our, `#/tables/${our.server.account}`);
  await page.getByRole("button", { name: "Create table" }).first().click();
  await page.getByLabel("Name").fill(name);
  const letGo = await held(page, "**/Tables");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  assert.ok(await page.getByRole("button", { name: "Cancel" }).isDisabled());
  await our.server.send("POST", "Tables", { body: JSON.stringify({ TableName: name }) });
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  letGo();
  await page
    .getByRole("alert")
    .getByText(/TableAlreadyExists/)
    .waitFor();
});

/** Imports a file, and returns what the dialog says at the end. */
async function imported(page, name, text) {
  await page.getByRole("button", { name: "Import" }).first().click();
  await page.getByLabel("File").setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(text) });
  await page.locator(".sample").getByText("Row 1", { exact: true }).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Import" }).click();
  await page.getByRole("button", { name: "Close" }).waitFor();
  return page.getByRole("dialog").locator(".job-state").textContent();
}

const rows = (count) => Array.from({ length: count }, (_, index) => `p${Math.floor(index / 100)},${index},${"x".repeat(6000)}\n`);

test("an import that a broken line ends says so, with all that was written", async () => {
  const table = await our.server.table();
  const page = await openTable(our, table);
  // Change sets are under way when the line is read.
  await page.route("**/$batch", async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    await route.continue();
  });
  const text = `PartitionKey,RowKey,A\n${rows(900).join("")}p,"a"b,c\n`;
  const state = await imported(page, "broken.csv", text);
  const written = /^Line 902: .* ([\d,]+) written\.$/.exec(state);
  assert.ok(written, state);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assert.equal(await page.getByRole("dialog").locator(".job-state").textContent(), state);
  const stored = (await our.server.entities(table, "$select=RowKey")).length;
  assert.equal(stored, Number(written[1].replace(",", "")));
});

test("the page of a proxy is no answer to a change set", async () => {
  const table = await our.server.table();
  const page = await openTable(our, table, { isLost: true });
  await page.route("**/$batch", (route) =>
    route.fulfill({ status: 200, contentType: "text/html", body: "<h1>Maintenance</h1>" }),
  );
  const state = await imported(page, "people.csv", "PartitionKey,RowKey\np,1\np,2\n");
  assert.match(state, /^The server does not answer\. 0 written/);
  assert.deepEqual(await our.server.entities(table), []);
});

test("requests go on after a restart that no poll has noticed, and none is shown twice", async () => {
  for (let index = 0; index < 30; index += 1) await our.server.table();
  // A pane that asks for nothing, so that every poll is noted.
  const page = await open(our, `#/sas-tokens/${our.server.account}`, { isLost: true, width: 2400 });
  await page.getByRole("button", { name: "Build" }).waitFor();
  const polls = new Set();
  page.on("request", (request) => /\/requests\?/.test(request.url()) && polls.add(request));
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => polls.delete(request));
  await page.goto(`${our.server.admin}/console/#/requests`);
  await page.locator(".grid-row").first().waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await eventually(() => polls.size, 0);
  await our.server.kill();
  await our.server.start();
  // A server keeps all requests from the first look of an operator on.
  await fetch(`${our.server.admin}/requests`, { headers: { authorization: `Bearer ${TOKEN}` } });
  const table = await our.server.table();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("gridcell", { name: table, exact: true }).first().waitFor();
  const ids = async () => {
    const shown = await column(page, "Request ID");
    return shown.length - new Set(shown).size;
  };
  await eventually(ids, 0);
});
