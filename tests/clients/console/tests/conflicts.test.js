// Two windows edit one entity.

import assert from "node:assert/strict";
import { test } from "node:test";
import { consoleForThisFile, eventually, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();

async function edit(page, values) {
  await tick(page, "p / r");
  await page.getByRole("button", { name: "Edit" }).click();
  for (const [name, value] of Object.entries(values)) await page.getByLabel(`Value of ${name}`).fill(value);
}

async function save(page) {
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

test("the second one sees both versions, and chooses for each property", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", A: "a", B: "b", C: "c", D: "d" }]);
  const [first, second] = [await openTable(our, table), await openTable(our, table)];
  await edit(first, { A: "first", B: "first" });
  await edit(second, { B: "second", C: "second" });
  await save(first);
  await second.getByRole("button", { name: "Save" }).click();
  const conflict = second.getByRole("dialog", { name: "Changed by somebody else" });
  await conflict.waitFor();
  await picture(second, "conflict");
  // What only the other one changed is theirs, what we changed is ours.
  assert.ok(await conflict.getByLabel("A: on the server").isChecked());
  assert.ok(await conflict.getByLabel("B: yours").isChecked());
  assert.ok(await conflict.getByLabel("C: yours").isChecked());
  assert.equal(await conflict.getByLabel("D: yours").count(), 0);
  await conflict.getByLabel("B: on the server").check();
  await conflict.getByRole("button", { name: "Save this choice" }).click();
  await second.getByRole("dialog").waitFor({ state: "detached" });
  await eventually(
    async () => (await our.server.entities(table)).map(({ A, B, C, D }) => [A, B, C, D]),
    [["first", "first", "second", "d"]],
  );
});

test("a conflict that is left changes nothing, and keeps the editor", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", A: "a" }]);
  const [first, second] = [await openTable(our, table), await openTable(our, table)];
  await edit(second, { A: "second" });
  await edit(first, { A: "first" });
  await save(first);
  await second.getByRole("button", { name: "Save" }).click();
  await second
    .getByRole("dialog", { name: "Changed by somebody else" })
    .getByRole("button", { name: "Cancel" })
    .click();
  assert.equal(await second.getByLabel("Value of A").inputValue(), "second");
  assert.equal((await our.server.entities(table))[0].A, "first");
});

test("an entity that somebody deleted is not brought back by saving", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", A: "a" }]);
  const page = await openTable(our, table);
  await edit(page, { A: "late" });
  await our.server.send("DELETE", `${table}(PartitionKey='p',RowKey='r')`, { headers: { "if-match": "*" } });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("This entity has been deleted meanwhile").waitFor();
  assert.deepEqual(await our.server.entities(table), []);
});

test("a selection that was changed meanwhile is left alone", async () => {
  const table = await our.server.table([
    { PartitionKey: "p", RowKey: "1" },
    { PartitionKey: "p", RowKey: "2" },
    { PartitionKey: "p", RowKey: "3" },
  ]);
  const page = await openTable(our, table);
  await page.getByLabel("Select all loaded rows").click();
  await our.server.send("PUT", `${table}(PartitionKey='p',RowKey='2')`, {
    body: '{"PartitionKey":"p","RowKey":"2","New":1}',
  });
  await our.server.send("DELETE", `${table}(PartitionKey='p',RowKey='3')`, { headers: { "if-match": "*" } });
  await page.getByRole("button", { name: "Delete selected" }).click();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("1 deleted, 2 left alone, because they were changed or deleted meanwhile.").waitFor();
  assert.deepEqual(
    (await our.server.entities(table)).map(({ RowKey, New }) => [RowKey, New]),
    [["2", 1]],
  );
});
