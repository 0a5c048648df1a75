// Sorting: by the server, of all entities, where it has that order; otherwise of the rows that are loaded.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TOKEN, column, consoleForThisFile, eventually, held, openTable, picture } from "./console.js";

const our = consoleForThisFile();
const LAST = 1199;

/** Sends a request to the admin listener. */
async function admin(method, path, document) {
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const response = await fetch(`${our.server.admin}/${path}`, { method, headers, body: JSON.stringify(document) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

/** Numbers in no order of keys, after 100 entities without one, and an index over them. */
async function numbered({ extended }) {
  const { account } = our.server;
  await admin("PUT", `accounts/${account}/queries`, { extended });
  const table = await our.server.table();
  await our.server.fill(table, LAST + 1, (index) => ({ Number: (index * 7) % (LAST + 1), Name: `n${index % 10}` }));
  await our.server.fill(table, 100, () => ({ Name: "none" }), "a");
  await admin("POST", "indexes", { account, table, property: "Number" });
  const answer = () => our.server.entities(table, "$orderby=Number%20desc&$top=1").catch(() => []);
  await eventually(async () => (await answer()).map(({ Number }) => Number), [LAST]);
  return table;
}

/** Opens a table, 100 rows a page, and notes what is asked for. */
async function opened(table) {
  const page = await openTable(our, table);
  await page.getByLabel("Rows per page").selectOption("100");
  await page.getByText("Page 1 · 100 entities").waitFor();
  const asked = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.pathname.endsWith("()"))
      asked.push({ order: url.searchParams.get("$orderby"), isFirst: !url.searchParams.has("NextPartitionKey") });
  });
  // Those of first pages: a page that the server cuts short by time takes several requests.
  const orders = () => asked.filter(({ isFirst }) => isFirst).map(({ order }) => order);
  return { page, asked, orders };
}

const header = (page, title) => page.getByRole("button", { name: new RegExp(`^${title}`) });
const first = async (page, title) => (await column(page, title))[0];

test("the server sorts by an index, page after page", async () => {
  const table = await numbered({ extended: true });
  const { page, orders } = await opened(table);
  // The entities of the first page have no Number: the column is there once it is sorted by.
  assert.equal(await header(page, "Number").count(), 0);
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByText("Page 2 · 100 entities").waitFor();
  assert.equal(await header(page, "Number").getAttribute("title"), "Sort by Number: all entities, by the index");
  await header(page, "Number").click();
  await eventually(() => first(page, "Number"), "");
  await header(page, "Number").click();
  await eventually(() => first(page, "Number"), String(LAST));
  await picture(page, "sorted-by-index");
  await page.getByRole("button", { name: "Next page" }).click();
  await eventually(() => first(page, "Number"), String(LAST - 100));
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator("explain-view .badge").getByText("Index order").waitFor();
  await header(page, "Number").click();
  await eventually(() => first(page, "PartitionKey"), "a");
  await header(page, "PartitionKey").click();
  // The answer draws the headers anew, which loses a click that is under way.
  await page.locator("data-grid[aria-busy=false]").waitFor();
  await header(page, "PartitionKey").click();
  await eventually(() => first(page, "RowKey"), String(LAST).padStart(7, "0"));
  assert.deepEqual(orders(), [
    "Number",
    "Number desc",
    null,
    "PartitionKey,RowKey",
    "PartitionKey desc,RowKey desc",
  ]);
  // The indexes are known while they are asked for again.
  const letGo = await held(page, "**/indexes?*");
  await page.getByRole("button", { name: "Run" }).click();
  await header(page, "Number").click();
  await header(page, "Number").click();
  await eventually(() => orders().slice(-2), ["Number", "Number desc"]);
  letGo();
  await eventually(() => first(page, "Number"), String(LAST));
});

test("without an index, the loaded rows are sorted, and the header says how to have all", async () => {
  const table = await numbered({ extended: true });
  const { page, asked } = await opened(table);
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByText("Page 2 · 100 entities").waitFor();
  asked.length = 0;
  const command = `rowhouse index create ${table} Name --account ${our.server.account}`;
  assert.equal(
    await header(page, "Name").getAttribute("title"),
    `Sort by Name: the loaded rows. For all entities: ${command}`,
  );
  await header(page, "Name").click();
  await header(page, "Name").click();
  assert.equal(await first(page, "Name"), "n9");
  await page.getByText("Page 2 · 100 entities").waitFor();
  assert.deepEqual(asked, []);
});

test("without extended queries, the loaded rows are sorted", async () => {
  const table = await numbered({ extended: false });
  const { page, asked } = await opened(table);
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByText("Page 2 · 100 entities").waitFor();
  asked.length = 0;
  const commands = [
    `rowhouse account queries ${our.server.account} extended`,
    `rowhouse index create ${table} Name --account ${our.server.account}`,
  ];
  const words = (shown) => `Sort by ${shown}: the loaded rows. For all entities: `;
  assert.equal(await header(page, "Number").getAttribute("title"), words("Number") + commands[0]);
  assert.equal(await header(page, "Name").getAttribute("title"), words("Name") + commands.join("; "));
  await header(page, "Number").click();
  await header(page, "Number").click();
  const numbers = (await column(page, "Number")).map(Number);
  assert.equal(numbers[0], 693);
  assert.deepEqual(asked, []);
});
