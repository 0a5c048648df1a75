// Deleted tables, which are brought back or purged.

import assert from "node:assert/strict";
import { test } from "node:test";
import { consoleForThisFile, newName, open, picture } from "./console.js";

const our = consoleForThisFile({ ROWHOUSE_KEEP_DELETED: "7d" });

/** Opens the list of deleted tables. */
async function openDeleted(page, number) {
  await page.getByRole("button", { name: `Deleted (${number})` }).click();
  return page.getByRole("dialog").filter({ hasText: "Deleted tables" });
}

test("a table that is deleted in the console comes back with its entities, or is purged", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 20, (index) => ({ Age: index }));
  const page = await open(our, `#/tables/${our.server.account}`);
  await page.getByRole("button", { name: "Deleted (0)" }).waitFor();
  await page.getByRole("checkbox", { name: new RegExp(table) }).check();
  await page.getByRole("button", { name: "Delete selected" }).click();
  await page.getByText("They can be brought back for 1w.").waitFor();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  let list = await openDeleted(page, 1);
  // Its size is left out where the server takes too long to measure it.
  assert.match(await list.getByText(/ · kept until /).textContent(), / · kept until [^·]+( · 20 entities, [^·]+)?$/);
  await picture(page, "deleted");
  await page.getByRole("button", { name: `Bring back ${table}` }).click();
  const question = page.getByRole("dialog").filter({ hasText: "It comes back with" });
  assert.equal(await question.getByLabel("Name").inputValue(), table);
  await question.getByRole("button", { name: "Bring back" }).click();
  await list.getByText("No deleted table can be brought back.").waitFor();
  assert.equal((await our.server.entities(table)).length, 20);
  await list.getByRole("button", { name: "Close" }).click();
  await page.getByRole("gridcell", { name: table, exact: true }).waitFor();

  await our.server.send("DELETE", `Tables('${table}')`);
  await page.reload();
  list = await openDeleted(page, 1);
  await page.getByRole("button", { name: `Purge ${table}` }).click();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("dialog").last().getByRole("button", { name: "Purge", exact: true }).click();
  await list.getByText("No deleted table can be brought back.").waitFor();
});

test("why a table does not come back is shown, and another name may serve", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r" }]);
  await our.server.send("DELETE", `Tables('${table}')`);
  await our.server.send("POST", "Tables", { body: JSON.stringify({ TableName: table }) });
  const page = await open(our, `#/tables/${our.server.account}`);
  await openDeleted(page, 1);
  await page.getByRole("button", { name: `Bring back ${table}` }).click();
  const question = page.getByRole("dialog").filter({ hasText: "It comes back with" });
  await question.getByRole("button", { name: "Bring back" }).click();
  await question.getByRole("alert").getByText("give another name").waitFor();
  const other = newName();
  await question.getByLabel("Name").fill(other);
  await question.getByRole("button", { name: "Bring back" }).click();
  // On PostgreSQL another name has to wait.
  if (process.env.DATABASE_URL?.startsWith("postgres")) {
    await question.getByRole("alert").getByText("it can have another name from").waitFor();
    return;
  }
  await question.waitFor({ state: "detached" });
  assert.equal((await our.server.entities(other)).length, 1);
});
