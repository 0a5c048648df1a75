// Everybody can use it: by keyboard, with a screen reader, in a narrow window, in the dark.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { cell, column, consoleForThisFile, eventually, open, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** What each pane shows once it has its data. */
const PANES = {
  tables: ".grid-row",
  entities: ".grid-row",
  "sas-tokens": "sas-inspector form",
  service: "text=No rules",
  activity: "activity-pane :is(.empty, .chart-line)",
  requests: ".grid-row",
  accounts: "article",
  snapshots: "snapshots-pane:has(> .cards .empty) fault-rules .empty",
};

/** What axe finds, with the rule for speech control, which it leaves out by itself. */
async function findings(page) {
  // By the debugger's way, which the page's policy does not forbid.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, {
      resultTypes: ["violations"],
      rules: { "label-content-name-mismatch": { enabled: true } },
    }),
  );
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(", ")}`);
}

/** Goes to a pane, and waits for its data. */
async function goTo(page, pane, table) {
  await page.goto(`${our.server.admin}/console/#/${pane}/${our.server.account}/${pane === "entities" ? table : ""}`);
  await page.locator(`main[data-pane=${pane}]`).locator(PANES[pane]).first().waitFor({ state: "attached" });
}

/** A table with something of everything. */
async function sample() {
  const table = await our.server.table();
  const cities = ["Bath", "Bristol", "Cardiff", "Leeds", "York"];
  await our.server.fill(
    table,
    60,
    (index) => ({
      Name: `House ${index + 1}`,
      City: cities[index % 5],
      Rooms: 3 + (index % 4),
      "Price@odata.type": "Edm.Double",
      Price: (181.5 + index * 7.25) * 1000,
      Sold: index % 3 === 0,
      "Listed@odata.type": "Edm.DateTime",
      Listed: `2026-0${1 + (index % 9)}-1${index % 10}T09:30:00Z`,
      ...(index % 4 ? {} : { Note: "corner plot" }),
    }),
    "Terrace",
  );
  return table;
}

test("axe finds nothing in any pane, in light and dark, wide and narrow", async () => {
  const table = await sample();
  for (const [width, scheme] of [
    [1280, "light"],
    [400, "dark"],
  ]) {
    const page = await open(our, "", { width, scheme });
    for (const pane of Object.keys(PANES)) {
      await goTo(page, pane, table);
      assert.deepEqual(await findings(page), [], `${pane}, ${width}, ${scheme}`);
      await picture(page, `${pane}-${width}-${scheme}`);
    }
  }
});

test("axe finds nothing in dialogs", async () => {
  const name = await sample();
  const table = await openTable(our, name, { scheme: "dark" });
  const tables = await open(our, `#/tables/${our.server.account}`, { scheme: "dark" });
  const snapshots = await open(our, "#/snapshots", { scheme: "dark" });
  await tick(tables, name);
  const row = await cell(table, 0, "RowKey");
  await tick(table, `Terrace / ${await row.textContent()}`);
  const of = (page, names) => names.map((name) => [page, name]);
  for (const [page, name] of [
    // An editor that was left reads the rows again, which ends the selection.
    ...of(table, ["Add", "Clone", "Import", "Export", "Columns", "Code", "Delete all found", "Edit"]),
    ...of(tables, ["Create table", "Import", "Policies", "Indexes", "Expiry", "Code", "Delete selected"]),
    ...of(snapshots, ["Add fault"]),
  ]) {
    await page.getByRole("button", { name, exact: true }).click();
    await page.getByRole("dialog").waitFor();
    await page.evaluate(() => Promise.all(document.getAnimations().map((animation) => animation.finished)));
    assert.deepEqual(await findings(page), [], name);
    await picture(page, `dialog-${name.toLowerCase().replaceAll(" ", "-")}`);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
});

test("a table is opened, walked through, selected and edited by keyboard", async () => {
  const table = await our.server.table(
    ["1", "2", "3"].map((RowKey) => ({ PartitionKey: "p", RowKey, A: Number(RowKey) })),
  );
  const page = await open(our, `#/tables/${our.server.account}`);
  await page.getByLabel("Find a table").fill(table);
  // Nobody goes on before the table is there: the grid is hidden until then.
  await page.getByRole("grid").getByText(table).waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByText("3 entities").waitFor();
  await page.getByRole("grid").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press(" ");
  await page.getByText("1 selected").waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Shift+ ");
  await page.getByText("2 selected").waitFor();
  await page.keyboard.press("End");
  await page.keyboard.press("s");
  await page.keyboard.press("s");
  await eventually(() => column(page, "A"), ["3", "2", "1"]);
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  // The way back is to where it began.
  await eventually(() => page.evaluate(() => document.activeElement?.getAttribute("role")), "grid");
});

test("a narrow window needs no sideways scrolling", async () => {
  const table = await sample();
  const page = await open(our, "", { width: 400 });
  for (const pane of Object.keys(PANES)) {
    await goTo(page, pane, table);
    const tooWide = await page.evaluate(() =>
      [document.documentElement, document.querySelector("main")].some(
        (element) => element.scrollWidth > element.clientWidth,
      ),
    );
    assert.equal(tooWide, false, pane);
  }
});
