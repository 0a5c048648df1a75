// The list of tables: what its buttons act on, how it looks in narrow windows, and imports into new tables.

import assert from "node:assert/strict";
import { test } from "node:test";
import { consoleForThisFile, eventually, newName, open, picture, tick } from "./console.js";

const our = consoleForThisFile();
const tables = () => `#/tables/${our.server.account}`;
const button = (page, name) => page.getByRole("button", { name, exact: true });

test("buttons for one table act on the ticked one, not on another in focus", async () => {
  const [first, second] = [await our.server.table(), await our.server.table()];
  const page = await open(our, tables());
  await page.getByRole("gridcell", { name: first, exact: true }).click({ position: { x: 100, y: 4 } });
  for (const name of ["Open", "Policies", "Indexes", "Expiry"]) assert.ok(await button(page, name).isDisabled(), name);
  await tick(page, second);
  await page.getByRole("grid").press("Home");
  await page.getByRole("grid").press("ArrowUp");
  for (const name of ["Policies", "Indexes", "Expiry"]) {
    await button(page, name).click();
    await page.getByRole("dialog", { name: `${name} of ${second}` }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await tick(page, first);
  await page.getByText("2 selected").waitFor();
  for (const name of ["Open", "Policies", "Indexes", "Expiry"]) assert.ok(await button(page, name).isDisabled(), name);
  assert.ok(await button(page, "Delete selected").isEnabled());
  await tick(page, first);
  await button(page, "Open").click();
  await page.waitForURL(`**/#/entities/${our.server.account}/${second}`);
});

test("a new table has the focus", async () => {
  await our.server.table();
  const page = await open(our, tables());
  const name = newName("Zoo");
  await page.getByLabel("Find a table").fill("T");
  await button(page, "Create table").click();
  await page.getByLabel("Name").fill(name);
  await button(page, "Create").click();
  await page.locator(".grid-active").getByText(name).waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("No entities yet").waitFor();
  assert.ok(page.url().endsWith(`/${name}`));
});

test("without a token or a server, nothing offers to create a table", async () => {
  const page = await open(our, tables(), { isLost: true });
  const areDisabled = async () =>
    (await button(page, "Create table").first().isDisabled()) && (await button(page, "Import").isDisabled());
  await page.getByRole("grid").waitFor();
  await eventually(areDisabled, false);
  for (const path of ["**/livez", "**/tables?*"]) await page.route(path, (route) => route.abort());
  await page.reload();
  await page.getByText("The server does not answer.").first().waitFor();
  assert.ok(await areDisabled());
  // The line above all panes says it, and nothing else.
  assert.equal(await page.getByText("The server does not answer.").count(), 1);
  await page.unrouteAll();
  await page.getByText("The server does not answer.").waitFor({ state: "hidden" });
  // A server that was started again may have another token.
  const headers = { "content-type": "application/json" };
  const json = { error: { code: "Unauthorized", message: "Send the admin token." } };
  await page.route("**/tables?*", (route) => route.fulfill({ status: 401, headers, json }));
  await page.reload();
  await page.getByRole("dialog", { name: "Sign in" }).waitFor();
  assert.ok(await areDisabled());
  assert.equal(await page.getByText("Send the admin token.").count(), 0);
});

test("on a phone, a long name leaves room for counts, and navigation hints that it scrolls", async () => {
  const name = `Customers${"OfTheNorthernBranches".repeat(2)}`;
  await our.server.send("POST", "Tables", { body: JSON.stringify({ TableName: name }) });
  const page = await open(our, tables(), { width: 390, height: 780 });
  await page.getByRole("link", { name, exact: true }).waitFor();
  for (const title of ["Entities", "Size"]) {
    const { x, width } = await page.getByRole("columnheader", { name: title }).boundingBox();
    assert.ok(x >= 0 && x + width <= 390, title);
  }
  await picture(page, "tables-phone");
  assert.ok(await page.locator("nav").evaluate((nav) => nav.scrollWidth > nav.clientWidth));
});

test("an import into a new table shows a table of the file, and names it after the file", async () => {
  const page = await open(our, tables());
  await button(page, "Import").click();
  const name = page.getByLabel("Table", { exact: true });
  const text = "PartitionKey,RowKey,Age,Age@type\np,1,30,Int32\np,2,x,Int32\n";
  const buffer = Buffer.from(text);
  await page.getByLabel("File").setInputFiles({ name: "2026 people-b.typed.csv", mimeType: "text/csv", buffer });
  const preview = page.getByRole("dialog").getByRole("table");
  await preview.waitFor();
  assert.deepEqual(await preview.locator("thead th").allTextContents(), ["Place", "PartitionKey", "RowKey", "Age"]);
  const rows = preview.locator("tbody tr");
  assert.deepEqual(await rows.nth(0).locator("th, td").allTextContents(), ["Row 1", "p", "1", "30 Int32"]);
  assert.match(await rows.nth(1).textContent(), /^Row 2Age: x is not an Edm\.Int32/);
  await picture(page, "import-preview");
  assert.equal(await name.inputValue(), "peopleb");
  await name.fill(" ");
  await page.getByRole("dialog").getByRole("button", { name: "Import" }).click();
  await page.getByRole("alert").getByText("Give the table a name.").waitFor();
  const wanted = newName("Imported");
  await name.fill(wanted);
  await page.getByRole("dialog").getByRole("button", { name: "Import" }).click();
  await page.getByText("1 written, 1 failed.").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("link", { name: wanted, exact: true }).waitFor();
  assert.equal((await our.server.entities(wanted)).length, 1);
});
