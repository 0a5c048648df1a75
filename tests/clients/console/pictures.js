// Makes the pictures of docs/how-to/console.md, or with `paint` only prints the time to the first paint.
// ROWHOUSE_BIN names the server. The activity takes five minutes to become a picture.

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ARGUMENTS, Server, TOKEN } from "./tests/console.js";

const FOLDER = fileURLToPath(new URL("../../../docs/images/", import.meta.url));
const SECONDS = Number(process.env.ROWHOUSE_ACTIVITY_SECONDS ?? 300);
const CITIES = ["Bath", "Bristol", "Cardiff", "Leeds", "York"];

const server = new Server();
server.account = "acme";
delete server.settings.ROWHOUSE_TEST_MODE;
await server.start();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ARGUMENTS });
mkdirSync(FOLDER, { recursive: true });

async function makeTable(name, count, make) {
  await server.send("POST", "Tables", { body: JSON.stringify({ TableName: name }) });
  for (const partition of CITIES) await server.fill(name, count, (index) => make(index, partition), partition);
}

const house = (index, city) => ({
  Name: `${city} House ${index + 1}`,
  Rooms: 3 + ((index * 7) % 5),
  "Price@odata.type": "Edm.Double",
  Price: 181500 + ((index * 7919) % 400) * 1250.5,
  Sold: index % 3 === 0,
  "Listed@odata.type": "Edm.DateTime",
  Listed: `2026-0${1 + (index % 9)}-1${index % 10}T09:30:00Z`,
  ...(index % 4 ? {} : { Note: "corner plot" }),
});

async function open(hash, { scheme = "light", height = 640 } = {}) {
  const context = await browser.newContext({ viewport: { width: 1120, height }, colorScheme: scheme });
  await context.addInitScript((token) => sessionStorage.setItem("rowhouse-token", token), TOKEN);
  const page = await context.newPage();
  await page.goto(`${server.admin}/console/${hash}`);
  return page;
}

const shoot = (page, name) => page.screenshot({ path: `${FOLDER}${name}.png`, animations: "disabled" });

async function entities() {
  const page = await open("#/entities/acme/Houses");
  await page.getByLabel("Filter").fill("PartitionKey eq 'Bath' and Price gt 400000.0");
  await page.getByLabel("Filter").press("Enter");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("One partition").waitFor();
  await page.getByRole("button", { name: "Measure" }).click();
  await page.getByText("Examined").waitFor();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByLabel("Timestamp").uncheck();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await shoot(page, "console-entities");
}

async function conflict() {
  const page = await open("#/entities/acme/Houses", { scheme: "dark" });
  await page.getByRole("gridcell", { name: "Bath House 1", exact: true }).dblclick();
  await page.getByLabel("Value of Rooms").fill("6");
  await page.getByLabel("Value of Note").fill("corner plot, garden");
  await server.send("PATCH", "Houses(PartitionKey='Bath',RowKey='0000000')", {
    headers: { "if-match": "*" },
    body: '{"Sold":false,"Note":"under offer"}',
  });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog", { name: "Changed by somebody else" }).waitFor();
  await shoot(page, "console-conflict");
}

/** Some clients' work, more of it now and then, with an error here and there. */
async function load(until) {
  const ask = (path) =>
    fetch(`${server.admin}/service/acme/${path}`, { headers: { authorization: `Bearer ${TOKEN}` } }).then((answer) =>
      answer.arrayBuffer(),
    );
  while (Date.now() < until) {
    const row = String(Math.floor(Math.random() * 400)).padStart(7, "0");
    await ask(`Houses(PartitionKey='Bath',RowKey='${row}')`);
    if (Math.random() < 0.05) await ask("Missing()");
    if (Math.random() < 0.02) await ask("Orders()?$top=500");
    await new Promise((resolve) =>
      setTimeout(resolve, 20 + 60 * Math.random() * (1.2 + Math.sin(Date.now() / 40_000))),
    );
  }
}

async function activity() {
  const page = await open("#/activity", { height: 740 });
  const until = Date.now() + SECONDS * 1000;
  const growth = async () => {
    for (let index = 0; Date.now() < until; index += 100) {
      await server.fill("Orders", 100, (at) => ({ Total: at }), `day${index}`);
      await new Promise((resolve) => setTimeout(resolve, 3000));
    }
  };
  await Promise.all([load(until), load(until), growth()]);
  await page.reload();
  await page.getByRole("img", { name: /^Latency/ }).waitFor();
  await shoot(page, "console-activity");
}

/** The median of ten openings. */
async function firstPaint() {
  const times = [];
  for (let turn = 0; turn < 10; turn += 1) {
    const page = await open("");
    await page.getByRole("grid").waitFor();
    times.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await page.context().close();
  }
  return times.sort((a, b) => a - b)[5];
}

try {
  await makeTable("Houses", 400, house);
  await makeTable("Orders", 200, (index) => ({ Total: index }));
  console.log(`first contentful paint: ${Math.round(await firstPaint())} ms`);
  if (process.argv[2] !== "paint") {
    await entities();
    await conflict();
    await activity();
  }
} finally {
  await browser.close();
  await server.stop();
}
