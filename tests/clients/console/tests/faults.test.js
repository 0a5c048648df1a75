// The faults that operators order for tests. Its server has a database of its own, as a reset of all accounts is a
// reset of those of other files' servers too.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { consoleForThisFile, open, picture } from "./console.js";

const our = consoleForThisFile({ DATABASE_URL: "sqlite://rowhouse.db" });
const dialog = (page) => page.getByRole("dialog");

/** The status of a GET by a client, which is no operator. */
async function statusForClients(address) {
  const { account, endpoint, keys } = our.server;
  const date = new Date().toUTCString();
  const signature = createHmac("sha256", Buffer.from(keys[0], "base64"))
    .update(`${date}\n/${account}${new URL(`${endpoint}/${address}`).pathname}`)
    .digest("base64");
  const authorization = `SharedKeyLite ${account}:${signature}`;
  const headers = { authorization, "x-ms-date": date, accept: "application/json" };
  return (await fetch(`${endpoint}/${address}`, { headers })).status;
}

test("faults are ordered, counted and removed", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r" }]);
  const page = await open(our, "#/snapshots");
  await page.getByText("No faults").waitFor();
  const add = async () => {
    await page.getByRole("button", { name: "Add fault" }).click();
    await dialog(page).waitFor();
  };
  const confirm = () => dialog(page).getByRole("button", { name: "Add" }).click();
  await add();
  await dialog(page).getByLabel("Operation").fill("Get");
  await confirm();
  await dialog(page).getByRole("alert").getByText(/no operation "Get"/).waitFor();
  await dialog(page).getByLabel("Operation").fill("GetEntity");
  await dialog(page).getByLabel("Table", { exact: true }).fill(table);
  await dialog(page).getByLabel("After").fill("1");
  await picture(page, "fault");
  await confirm();
  const rule = page.getByRole("article").filter({ hasText: `ServerBusy: GetEntity ${table}` });
  await rule.getByText("applied 0 of 1 times, 0 matched, after 1").waitFor();
  const path = `${table}(PartitionKey='p',RowKey='r')`;
  const statuses = [];
  for (let turn = 0; turn < 3; turn += 1) {
    statuses.push(await statusForClients(path));
    // What the console asks for meets no fault.
    await our.server.send("GET", path);
  }
  assert.deepEqual(statuses, [200, 503, 200]);
  // Without being asked for.
  await rule.getByText("applied 1 of 1 times, 3 matched").waitFor();
  await add();
  await dialog(page).getByLabel("Fault", { exact: true }).selectOption("after");
  await dialog(page).getByLabel("Times").fill("2");
  await confirm();
  await page.getByRole("heading", { name: "disconnected after: any request" }).waitFor();
  await rule.getByText("applied 0 of 1 times, 0 matched").waitFor();
  await picture(page, "faults");
  await page.getByRole("button", { name: /^Remove ServerBusy/ }).click();
  await rule.waitFor({ state: "detached" });
  await page.getByRole("button", { name: /^Remove disconnected/ }).click();
  await page.getByText("No faults").waitFor();
  await add();
  await dialog(page).getByLabel("Fault", { exact: true }).selectOption("delay");
  await dialog(page).getByLabel("Milliseconds").fill("1");
  await confirm();
  await page.getByRole("heading", { name: "1 ms: any request" }).waitFor();
  await add();
  await dialog(page).getByLabel("Fault", { exact: true }).selectOption("page");
  await dialog(page).getByLabel("Rows").fill("2");
  await confirm();
  await page.getByRole("heading", { name: "pages of 2: any query" }).waitFor();
  await page.getByRole("button", { name: "Reset" }).click();
  await dialog(page).getByLabel("Type reset to confirm").fill("reset");
  await dialog(page).getByRole("button", { name: "Reset" }).click();
  await page.getByText("No faults").waitFor();
});
