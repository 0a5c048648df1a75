// A server that goes away and comes back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { column, consoleForThisFile, eventually, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();

test("the console says that the server is lost, and goes on when it is back", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", A: 1 }]);
  const page = await openTable(our, table, { isLost: true });
  await tick(page, "p / r");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Value of A").fill("2");
  await our.server.kill();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("The server does not answer.").waitFor();
  await page.getByText("The console tries again").waitFor({ state: "attached" });
  await picture(page, "lost");
  assert.equal(await page.getByLabel("Value of A").inputValue(), "2");
  await our.server.start();
  await page.getByText("The console tries again").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal((await our.server.entities(table))[0].A, 2);
  await eventually(() => column(page, "A"), ["2"]);
});
