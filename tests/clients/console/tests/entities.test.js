// Entities: pages, columns, filters, and every way to change them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cell, column, consoleForThisFile, eventually, held, open, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();
const people = [
  ["Jones", "Ann", 5],
  ["Jones", "Mary", 33],
  ["Jones", "Tom", 21],
  ["Smith", "Eve", 44],
].map(([PartitionKey, RowKey, Age]) => ({
  PartitionKey,
  RowKey,
  Age,
  "Visits@odata.type": "Edm.Int64",
  Visits: String(Age * 1000),
}));

const keys = (entities) => entities.map(({ RowKey }) => RowKey);

test("an entity is added, cloned, changed and deleted", async () => {
  const table = await our.server.table();
  const page = await openTable(our, table);
  await picture(page, "entities-empty");
  assert.ok(await page.getByRole("button", { name: "Delete all found" }).isDisabled());
  await page.getByRole("button", { name: "Add entity" }).click();
  await page.getByLabel("PartitionKey").fill("Jones");
  await page.getByLabel("RowKey").fill("Mary");
  await page.getByRole("button", { name: "Add property" }).click();
  await page.getByLabel("Property name").fill("Age");
  await page.getByLabel("Type", { exact: true }).selectOption("Int32");
  await page.getByLabel("Value of the new property").fill("1.5");
  await page.getByText("A whole number from").waitFor();
  await page.getByLabel("Value of the new property").fill("33");
  await page.getByRole("button", { name: "Add", exact: true }).last().click();
  await page.getByRole("gridcell", { name: "Mary", exact: true }).waitFor();

  await tick(page, "Jones / Mary");
  await page.getByRole("button", { name: "Clone" }).click();
  await page.getByLabel("RowKey").fill("Tom");
  await page.getByLabel("Value of Age").fill("21");
  await page.getByRole("button", { name: "Add", exact: true }).last().click();
  await page.getByRole("gridcell", { name: "Tom", exact: true }).waitFor();

  await page.getByRole("gridcell", { name: "Tom", exact: true }).dblclick();
  await page.getByLabel("Value of Age").fill("22");
  await page.getByRole("button", { name: "Save" }).click();
  await eventually(
    async () => (await our.server.entities(table)).map(({ RowKey, Age }) => [RowKey, Age]),
    [
      ["Mary", 33],
      ["Tom", 22],
    ],
  );
  // The entities are read again, which ends a selection.
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.locator("data-grid[aria-busy=false]").waitFor();

  await page.getByRole("checkbox", { name: "Select Jones / Mary" }).click();
  await page.getByRole("button", { name: "Delete selected" }).click();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("1 deleted.").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  assert.deepEqual(keys(await our.server.entities(table)), ["Tom"]);
});

test("a merge leaves what it does not name; a replacement drops what was removed", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", A: 1, B: 2, C: 3 }]);
  const page = await openTable(our, table);
  await tick(page, "p / r");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Value of A").fill("10");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.locator("data-grid[aria-busy=false]").waitFor();
  await tick(page, "p / r");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("button", { name: "Remove B" }).click();
  assert.equal(await page.getByLabel("How to save").inputValue(), "replace");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const [{ A, B, C }] = await our.server.entities(table);
  assert.deepEqual([A, B, C], [10, undefined, 3]);
});

test("a raw filter and a built one find the same, and the builder knows types", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByLabel("Filter").fill("PartitionKey eq 'Jones' and Age gt 20");
  await page.getByLabel("Filter").press("Enter");
  await page.getByText("2 entities").waitFor();
  await page.getByRole("button", { name: "Builder" }).click();
  await page.getByLabel("Property", { exact: true }).fill("Visits");
  await page.getByLabel("Property", { exact: true }).press("Tab");
  assert.equal(await page.getByLabel("Type of the value").inputValue(), "Edm.Int64");
  await page.getByLabel("Comparison").selectOption("ge");
  await page.getByLabel("Value", { exact: true }).fill("21000");
  await page.getByRole("button", { name: "Add clause" }).click();
  await page.getByLabel("Property", { exact: true }).last().fill("PartitionKey");
  await page.getByLabel("Comparison").last().selectOption("begins");
  await page.getByLabel("Value", { exact: true }).last().fill("Jo");
  await picture(page, "builder");
  await page.getByRole("button", { name: "Apply filter" }).click();
  assert.equal(
    await page.getByLabel("Filter").inputValue(),
    "Visits ge 21000L and (PartitionKey ge 'Jo' and PartitionKey lt 'Jp')",
  );
  await eventually(() => column(page, "RowKey"), ["Mary", "Tom"]);
});

test("the builder asks what programs can ask only with extended queries", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByRole("button", { name: "Builder" }).click();
  await page.getByLabel("Property", { exact: true }).fill("RowKey");
  await page.getByLabel("Comparison").selectOption("contains");
  await page.getByLabel("Value", { exact: true }).fill("ar");
  await page.getByRole("button", { name: "Add clause" }).click();
  await page.getByLabel("Property", { exact: true }).last().fill("Age");
  await page.getByLabel("Comparison").last().selectOption("present");
  assert.equal(await page.getByLabel("Value", { exact: true }).last().isDisabled(), true);
  await page.getByRole("button", { name: "Apply filter" }).click();
  assert.equal(await page.getByLabel("Filter").inputValue(), "contains(RowKey,'ar') and Age ne null");
  await eventually(() => column(page, "RowKey"), ["Mary"]);
});

test("a filter that is wrong is answered in words, with the id of the request", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByLabel("Filter").fill("Age gt");
  await page.getByRole("button", { name: "Run" }).click();
  const error = page.getByRole("alert");
  await error.waitFor();
  assert.match(await error.textContent(), /\(\w+, status 400\)Request [0-9a-f-]{36}$/);
  await picture(page, "error");
  await page.getByLabel("Filter").fill("");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("4 entities").waitFor();
  assert.equal(await error.count(), 0);
});

test("an error appears once, and the rows of the query before are marked", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("Whole table").waitFor();
  await page.getByLabel("Filter").fill("Age gt");
  await page.locator("explain-view .wrong").waitFor();
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByRole("alert").waitFor();
  assert.equal(await page.locator("explain-view .wrong").count(), 0);
  await page.getByText("These rows are from the previous query.").waitFor();
  assert.equal(await page.locator("data-grid.stale .grid-row").count(), 4);
  assert.ok(await page.getByRole("button", { name: "Delete all found" }).isDisabled());
  await picture(page, "stale");
  await page.getByLabel("Filter").fill("Age gt 20");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("3 entities").waitFor();
  assert.equal(await page.locator("data-grid.stale").count(), 0);
});

test("what is wrong with a property appears once, beside it", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByRole("gridcell", { name: "Mary", exact: true }).dblclick();
  await page.getByLabel("Value of Age").fill("many");
  await page.getByRole("button", { name: "Save" }).click();
  const wrong = page.getByRole("dialog").getByText("A whole number from");
  await wrong.waitFor();
  assert.equal(await wrong.count(), 1);
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")), "Value of Age");
});

test("an editor begins in the first value, and long texts have room", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", Note: "short" }]);
  const page = await openTable(our, table);
  await page.getByRole("gridcell", { name: "short", exact: true }).dblclick();
  const note = page.getByLabel("Value of Note");
  await note.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")), "Value of Note");
  await page.keyboard.press("Control+End");
  for (const line of ["two", "three", "four"]) {
    await page.keyboard.press("Enter");
    await page.keyboard.type(line);
  }
  assert.equal(await note.inputValue(), "short\ntwo\nthree\nfour");
  await picture(page, "editor-lines");
  assert.ok(await note.evaluate((area) => area.scrollHeight <= area.clientHeight));
});

test("buttons for one entity act on the ticked one, not on another in focus", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  const [edit, clone] = ["Edit", "Clone"].map((name) => page.getByRole("button", { name, exact: true }));
  await page.getByRole("gridcell", { name: "Ann", exact: true }).click();
  assert.ok((await edit.isDisabled()) && (await clone.isDisabled()));
  await tick(page, "Smith / Eve");
  await page.getByRole("gridcell", { name: "Ann", exact: true }).click();
  await edit.click();
  assert.equal(await page.getByLabel("RowKey").inputValue(), "Eve");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.locator("data-grid[aria-busy=false]").waitFor();
  await tick(page, "Jones / Tom");
  await tick(page, "Smith / Eve");
  await page.getByText("2 selected").waitFor();
  assert.ok((await edit.isDisabled()) && (await clone.isDisabled()));
});

test("pages go forward and back, and sorting is by value", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 250, (index) => ({
    "Number@odata.type": "Edm.Int64",
    Number: String((index * 7919) % 250),
  }));
  const page = await openTable(our, table);
  await page.getByLabel("Rows per page").selectOption("100");
  await page.getByText("Page 1 · 100 entities").waitFor();
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByText("Page 2 · 100 entities · 101 to 200 of 250").waitFor();
  assert.equal((await column(page, "RowKey"))[0], "0000100");
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByText("Page 3 · 50 entities · 201 to 250 of 250").waitFor();
  assert.ok(await page.getByRole("button", { name: "Next page" }).isDisabled());
  await page.getByRole("button", { name: "Previous page" }).click();
  await page.getByText("Page 2 · 100 entities").waitFor();
  assert.equal((await column(page, "RowKey"))[0], "0000100");
  await page.getByRole("button", { name: /^RowKey/ }).click();
  const title = page.getByRole("columnheader", { name: "RowKey" }).locator(".grid-title");
  assert.ok(await title.evaluate((element) => element.scrollWidth <= element.clientWidth));
  await page.getByRole("button", { name: /^Number/ }).click();
  await page.getByText("only the rows of this page are sorted by Number").waitFor();
  const numbers = (await column(page, "Number")).map(Number);
  assert.deepEqual(
    numbers,
    [...numbers].sort((a, b) => a - b),
  );
  assert.equal(
    await page.getByRole("columnheader").filter({ hasText: "Number" }).getAttribute("aria-sort"),
    "ascending",
  );
});

test("columns and their widths are remembered for the table", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByLabel("Timestamp").uncheck();
  await page.getByLabel("Find").fill("vis");
  await page.getByRole("checkbox", { name: "Visits" }).uncheck();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.reload();
  await page.getByRole("gridcell", { name: "Mary", exact: true }).waitFor();
  assert.deepEqual(await page.locator(".grid-title").allTextContents(), ["PartitionKey", "RowKey", "Age"]);
});

test("a cell is copied whole", async () => {
  const long = "x".repeat(5000);
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "r", Long: long }]);
  const page = await openTable(our, table);
  await (await cell(page, 0, "Long")).click();
  await page.keyboard.press("Control+c");
  await eventually(
    () => page.evaluate((text) => navigator.clipboard.readText().then((copied) => copied === text), long),
    true,
  );
  await (await cell(page, 0, "RowKey")).click();
  await page.getByRole("button", { name: "Copy cell" }).click();
  await eventually(() => page.evaluate(() => navigator.clipboard.readText()), "r");
});

test("what a filter finds is counted, then deleted, except what was written meanwhile", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 2300, (index) => ({ Odd: index % 2 === 1 }));
  const page = await openTable(our, table);
  await page.getByLabel("Filter").fill("Odd eq true");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("1,000 entities").waitFor();
  await page.getByRole("button", { name: "Delete all found" }).click();
  await page.getByText("1,150 found").waitFor();
  await picture(page, "delete-found");
  assert.ok(await page.getByRole("button", { name: "Delete", exact: true }).isDisabled());
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("1,150 deleted.").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByText("Nothing matches").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByText("1,000 entities").waitFor();
});

test("a deletion is cancelled, and says how far it came", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 1000, () => ({}));
  const page = await openTable(our, table);
  const letGo = await held(page, "**/$batch", 1);
  await page.getByRole("button", { name: "Delete all found" }).click();
  await page.getByText("1,000 found").waitFor();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("100 deleted").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  // Only then: let go before the browser has cancelled it, the second change set deletes a hundred more.
  await page.getByText("900 entities").waitFor();
  letGo();
});

test("code for what is on the screen, in five languages", async () => {
  const table = await our.server.table(people);
  const page = await openTable(our, table);
  await page.getByLabel("Filter").fill("RowKey eq 'O''Neil \"x\"'");
  await page.getByRole("button", { name: "Code" }).click();
  const expected = {
    python: "query_entities(\"RowKey eq 'O''Neil \\\"x\\\"'\")",
    javascript: "filter: \"RowKey eq 'O''Neil \\\"x\\\"'\"",
    dotnet: 'QueryAsync<TableEntity>("RowKey eq',
    go: "aztables.ListEntitiesOptions{Filter: &filter}",
    java: "setFilter(\"RowKey eq 'O''Neil \\\"x\\\"'\")",
  };
  for (const [language, part] of Object.entries(expected)) {
    await page.getByLabel("SDK").selectOption(language);
    const code = await page.locator("pre").textContent();
    assert.ok(code.includes(part), code);
    assert.ok(code.includes(table) && code.includes(our.server.endpoint), code);
  }
  await picture(page, "code");
});

test("an address leads to a table, and back", async () => {
  const table = await our.server.table(people);
  const page = await open(our, `#/tables/${our.server.account}`);
  const back = async () => {
    await page.getByText("4 entities").waitFor();
    await page.goBack();
    await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  };
  await page.getByRole("gridcell", { name: table, exact: true }).dblclick();
  await back();
  await page.getByText("click a name to open the table").waitFor();
  await page.getByRole("link", { name: table, exact: true }).click();
  await back();
});
