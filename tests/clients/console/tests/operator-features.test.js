// Indexes and expiry.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TOKEN, consoleForThisFile, eventually, open, openTable, picture } from "./console.js";

const our = consoleForThisFile();

/** Runs a test with the dialogs of a table. */
function withTable(name, body) {
  test(name, async () => {
    const table = await our.server.table();
    await our.server.fill(table, 20, (index) => ({ Age: index, Name: `n${index}` }));
    const page = await open(our, `#/tables/${our.server.account}`);
    await page.getByRole("gridcell", { name: table, exact: true }).click();
    await body(page, table);
  });
}

/** How the server answers a filter. @param {string} table @param {string} filter */
async function access(table, filter) {
  const response = await fetch(`${our.server.admin}/explain`, {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ account: our.server.account, table, filter }),
  });
  return (await response.json()).access;
}

/** The index is named for a filter that uses it. @param {string} table */
async function explained(table) {
  const filter = "Age eq 7";
  // The server uses an index some seconds after it is ready, and the page explains a filter once.
  await eventually(() => access(table, filter), "index");
  const page = await openTable(our, table);
  await page.getByLabel("Filter").fill(filter);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator("explain-view .badge").getByText("Index", { exact: true }).waitFor();
  const index = page.locator("explain-view dt:text-is('Index') + dd");
  assert.equal(await index.textContent(), "Age (number)");
  await page.close();
}

withTable("an index is created, becomes ready, and is dropped", async (page, table) => {
  await page.getByRole("button", { name: "Indexes" }).click();
  await page.getByLabel("Property").fill("Age");
  await page.getByRole("button", { name: "Create index" }).click();
  await page.getByText(/^number · ready/).waitFor();
  await picture(page, "indexes");
  await explained(table);
  await page.getByRole("button", { name: "Drop the index on Age" }).click();
  await page.getByText(/^No indexes/).waitFor();
});

withTable("entities are made to expire, and no longer", async (page) => {
  await page.getByRole("button", { name: "Expiry" }).click();
  await page.getByText("do not expire").waitFor();
  await page.getByLabel("After").fill("30d");
  await picture(page, "expiry");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Expiry" }).click();
  await page.getByText("entities have expired").waitFor();
  assert.equal(await page.getByLabel("After").inputValue(), "30d");
  await page.getByRole("button", { name: "End expiry" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
});
