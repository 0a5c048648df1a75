// Content that would like to be a script, and shapes that nobody expects.

import assert from "node:assert/strict";
import { test } from "node:test";
import { column, consoleForThisFile, eventually, open, openTable, picture, tick } from "./console.js";

const our = consoleForThisFile();
const SCRIPT = `"'><img src=x onerror="alert(1)"><script>alert(2)<\u002fscript>\${alert(3)}{{alert(4)}}`;
const KEY = SCRIPT.replaceAll("/", "");
const NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty", "innerHTML", "onload", "then"];

/** How many elements the page has that content could have made. */
const made = (page) =>
  page.locator("img:not([src='icon.svg']), iframe, object, embed, main script, dialog script").count();

test("keys, names and values are shown as the text that they are", async () => {
  const table = await our.server.table([
    Object.fromEntries([
      ["PartitionKey", KEY],
      ["RowKey", KEY],
      ["Text", SCRIPT],
      ...NAMES.map((name) => [name, SCRIPT]),
    ]),
  ]);
  const page = await openTable(our, table);
  assert.deepEqual(await column(page, "PartitionKey"), [KEY]);
  assert.deepEqual(await column(page, "Text"), [SCRIPT]);
  await page.getByRole("grid").press("Enter");
  assert.equal(await page.getByLabel("Value of Text").inputValue(), SCRIPT);
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.getByLabel("Filter").fill(SCRIPT);
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByRole("button", { name: "Code" }).click();
  await page.locator("pre").waitFor();
  await picture(page, "hostile");
  assert.equal(await made(page), 0);
});

test("policies, snippets, SAS tokens and addresses of the console are texts as well", async () => {
  const table = await our.server.table();
  const id = SCRIPT.slice(0, 64);
  await our.server.send("PUT", `${table}?comp=acl`, {
    body: `<SignedIdentifiers><SignedIdentifier><Id>${id.replace(/[<>&]/g, (char) => `&#${char.charCodeAt(0)};`)}</Id></SignedIdentifier></SignedIdentifiers>`,
    headers: { "content-type": "application/xml", accept: "application/xml" },
  });
  const page = await open(our, `#/tables/${our.server.account}`);
  await tick(page, table);
  await page.getByRole("button", { name: "Policies" }).click();
  assert.equal(await page.getByLabel("Id").inputValue(), id);
  assert.equal(await made(page), 0);
  const other = await open(our, `#/entities/${encodeURIComponent(SCRIPT)}/${encodeURIComponent(SCRIPT)}`);
  await other.getByRole("alert").waitFor();
  assert.equal(await made(other), 0);
  const third = await open(our, `#/sas-tokens/${our.server.account}`);
  await third
    .getByLabel("Address or token")
    .fill(`sv=2019-02-02&tn=${encodeURIComponent(SCRIPT)}&sig=${encodeURIComponent(SCRIPT)}`);
  await third.getByRole("button", { name: "Inspect" }).click();
  await third.locator("sas-inspector [role=status] > *").first().waitFor();
  assert.equal(await made(third), 0);
});

test("scripts that are not the page's own do not run", async () => {
  const page = await open(our, "");
  await page.getByRole("heading", { name: "Tables", exact: true }).waitFor();
  const response = await page.request.get(`${our.server.admin}/console/`);
  const policy = response.headers()["content-security-policy"];
  for (const part of [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
  ])
    assert.ok(policy.includes(part), policy);
  assert.doesNotMatch(policy, /unsafe/);
  const ran = await page.evaluate(
    () =>
      new Promise((resolve) => {
        document.addEventListener("securitypolicyviolation", () => resolve(false));
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        setTimeout(() => resolve(window.ran === true), 500);
      }),
  );
  assert.equal(ran, false);
  // That violation was ours.
  our.windows.forEach(({ faults }) => faults.splice(0));
});

test("ten thousand columns of odd entities stay quick, since only those in sight are elements", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 1000, (index) =>
    Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`P${index * 12 + at}`, `${index} ${at}`])),
  );
  const page = await openTable(our, table);
  await page.getByText("1,000 entities").waitFor();
  assert.equal(await page.getByRole("grid").getAttribute("aria-colcount"), String(12_000 + 4));
  const elements = () => page.locator("data-grid *").count();
  assert.ok((await elements()) < 2000, `${await elements()} elements`);
  await page.getByRole("grid").press("End");
  await page.getByRole("columnheader", { name: /^P11999/ }).waitFor();
  await page.getByRole("grid").press("Control+End");
  await page.getByRole("gridcell", { name: "999 11", exact: true }).waitFor();
  assert.ok((await elements()) < 2000, `${await elements()} elements`);
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByLabel("Find").fill("P7777");
  await page.getByRole("checkbox", { name: "P7777" }).waitFor();
});

test("a page of ten thousand rows has elements for those in sight only", async () => {
  const table = await our.server.table();
  await our.server.fill(table, 10_500, (index) => ({ Number: index }));
  const page = await openTable(our, table);
  await page.getByLabel("Rows per page").selectOption("10000");
  await page.getByText("Page 1 · 10,000 entities").waitFor();
  assert.ok((await page.locator("data-grid *").count()) < 1000);
  await page.getByRole("grid").press("Control+End");
  await eventually(async () => (await column(page, "Number")).pop(), "9999");
});
