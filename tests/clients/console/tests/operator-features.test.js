// Indexes and expiry.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TOKEN, consoleForThisFile, eventually, open, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();

/** Runs a test with the dialogs of a table. */
function withTable(name, body) {
  test(name, async () => {
    const table = await our.server.table();
    await our.server.fill(table, 20, (index) => ({ Age: index, Name: `n${index}` }));
    const page = await open(our, `#/tables/${our.server.account}`);
    await tick(page, table);
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
  const open = async () => {
    await page.getByRole("button", { name: "Expiry" }).click();
    await page.getByRole("button", { name: "Save" }).and(page.locator(":enabled")).waitFor();
  };
  const save = async () => {
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await open();
  assert.ok(await page.getByLabel("Never").isChecked());
  // One way or the other, so only the fields of the chosen one are there.
  await page.getByLabel("At a time that each entity has").check();
  assert.equal(await page.getByLabel("Time after the write").isVisible(), false);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("Name a DateTime property.").waitFor();
  await page.getByLabel("Some time after the last write").check();
  assert.equal(await page.getByLabel("Property", { exact: true }).isVisible(), false);
  await page.getByLabel("Time after the write").fill("30d");
  await picture(page, "expiry");
  await save();
  await open();
  await page.getByText("entities have expired so far").waitFor();
  assert.ok(await page.getByLabel("Some time after the last write").isChecked());
  assert.equal(await page.getByLabel("Time after the write").inputValue(), "30d");
  await page.getByLabel("Never").check();
  await save();
  await open();
  assert.ok(await page.getByLabel("Never").isChecked());
  await save();
});
