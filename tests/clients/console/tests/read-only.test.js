// A console that may only look.

import assert from "node:assert/strict";
import { test } from "node:test";
import { consoleForThisFile, open, openTable, picture, TOKEN } from "./console.js";

const our = consoleForThisFile({ ROWHOUSE_CONSOLE: "read-only" });
const CHANGES =
  /^(Add|Create|Import|Edit|Clone|Delete|Rotate|Limit|Disable|Enable|Remove|Save|Build|Take|Restore|Reset)\b/;

test("nothing that changes is offered, and the server would refuse it", async () => {
  const page = await open(our, "");
  await page.getByText("read-only").waitFor();
  for (const pane of [
    `tables/${our.server.account}`,
    `sas-tokens/${our.server.account}`,
    `service/${our.server.account}`,
    "accounts",
    "snapshots",
  ]) {
    await page.goto(`${our.server.admin}/console/#/${pane}`);
    // All that the pane asks the server for has come.
    await page.reload({ waitUntil: "networkidle" });
    await page.locator(`main[data-pane=${pane.split("/")[0]}]`).waitFor();
    const offered = await page.getByRole("button").allTextContents();
    assert.deepEqual((await page.getByRole("button", { name: CHANGES }).all()).length, 0, `${pane}: ${offered}`);
  }
  await picture(page, "read-only");
  const refused = await page.evaluate(
    async ([account, token]) => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const answers = await Promise.all([
        fetch(`../service/${account}/Tables`, { method: "POST", headers, body: '{"TableName":"Sneaky"}' }),
        fetch("../accounts", { method: "POST", headers, body: '{"name":"sneaky"}' }),
        fetch("../test/reset", { method: "POST", headers }),
      ]);
      return answers.map(({ status }) => status);
    },
    [our.server.account, TOKEN],
  );
  assert.deepEqual(refused, [403, 403, 403]);
});

test("tables can be looked through", async () => {
  const page = await openTable(our, "Missing");
  await page
    .getByRole("alert")
    .getByText(/TableNotFound/)
    .waitFor();
});
