// Values keep every bit on their way through the page: read, shown, edited, exported and imported.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { consoleForThisFile, eventually, open, openTable, picture } from "./console.js";

const our = consoleForThisFile();
/** The longest wait for a whole file. */
const timeout = 600_000;

/** An entity of every type, at the edges of each. */
const ODD = [
  '"Text":"a\\u0000b\\r\\nc\\td\\u2028\\ud83d\\ude00\\"\\\\"',
  '"Empty":""',
  '"Space":"  both  "',
  '"Big@odata.type":"Edm.Int64","Big":"9223372036854775807"',
  '"Odd@odata.type":"Edm.Int64","Odd":"-9007199254740993"',
  '"Small":-2147483648',
  '"NotANumber@odata.type":"Edm.Double","NotANumber":"NaN"',
  '"Endless@odata.type":"Edm.Double","Endless":"-Infinity"',
  '"MinusZero@odata.type":"Edm.Double","MinusZero":"-0.0"',
  '"Whole@odata.type":"Edm.Double","Whole":"3.0"',
  '"Tiny@odata.type":"Edm.Double","Tiny":"4.9406564584124654E-324"',
  '"Third@odata.type":"Edm.Double","Third":"0.1"',
  '"When@odata.type":"Edm.DateTime","When":"1601-01-01T00:00:00.0000001Z"',
  '"Last@odata.type":"Edm.DateTime","Last":"9999-12-31T23:59:59.9999999Z"',
  '"Id@odata.type":"Edm.Guid","Id":"c9da6455-213d-42c9-9a79-3e9149a57833"',
  '"Bytes@odata.type":"Edm.Binary","Bytes":"AAEC/f7/"',
  '"None@odata.type":"Edm.Binary","None":""',
  '"Yes":true',
  '"No":false',
  '"__proto__":"a name"',
  '"constructor":1',
  '"é日本":"unicode"',
];
const KEYS = [
  ["p", "r"],
  ["it's", "100% +/"],
  ["", ""],
  [" é日本𝄞 ", '~!@$^&*()_+=-[]{}|;:,<>`"'],
].map(([p, r]) => [p, r.replace("/", "")]);

/** The entities with every number as it is written, their properties in order, without what a write changes. */
async function stored(table) {
  const text = await our.server.send("GET", `${table}()`, {
    headers: { accept: "application/json;odata=minimalmetadata" },
  });
  const entities = JSON.parse(text.replace(/:(-?\d[\d.eE+-]*)(?=[,}])/g, ':"number $1"')).value;
  return entities.map((entity) =>
    Object.entries(entity)
      .filter(([name]) => !["Timestamp", "odata.etag"].includes(name))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

async function oddTable() {
  const table = await our.server.table();
  for (const [PartitionKey, RowKey] of KEYS) {
    await our.server.send("POST", table, {
      body: `{"PartitionKey":${JSON.stringify(PartitionKey)},"RowKey":${JSON.stringify(RowKey)},${ODD.join(",")}}`,
    });
  }
  return table;
}

async function exportOf(page, format) {
  await page.getByRole("button", { name: "Export" }).click();
  await page.getByLabel("Format").selectOption(format);
  const downloading = page.waitForEvent("download", { timeout });
  await page.getByRole("dialog").getByRole("button", { name: "Export" }).click();
  const file = await (await downloading).path();
  await page
    .getByRole("dialog")
    .getByText(/exported/)
    .waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  return readFileSync(file);
}

async function importInto(page, name, buffer) {
  await page.getByRole("button", { name: "Import" }).first().click();
  await page.getByLabel("File").setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(buffer) });
  await page
    .locator(".sample")
    .getByText(/^(Row|Line) 1$/)
    .waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Import" }).click();
  const state = page.getByRole("dialog").locator(".job-state");
  await page.getByRole("button", { name: "Close" }).waitFor({ timeout });
  const summary = await state.textContent();
  const problems = await page.locator(".problems li").allTextContents();
  await page.getByRole("button", { name: "Close" }).click();
  return { summary, problems };
}

for (const [format, name] of [
  ["ndjson", "odd.ndjson"],
  ["csv", "odd.typed.csv"],
]) {
  test(`an export as ${format} brings every value back when it is imported`, async () => {
    const table = await oddTable();
    const file = await exportOf(await openTable(our, table), format);
    const copy = await our.server.table();
    const { summary, problems } = await importInto(await openTable(our, copy), name, file);
    assert.deepEqual(problems, []);
    assert.equal(summary, "4 written.");
    assert.deepEqual(await stored(copy), await stored(table));
  });
}

test("what nobody touched in the editor is written as it was", async () => {
  const table = await oddTable();
  const before = await stored(table);
  const page = await openTable(our, table);
  for (let row = 0; row < KEYS.length; row += 1) {
    await page
      .locator(`.grid-row[aria-rowindex="${row + 2}"] .key`)
      .first()
      .click();
    await page.getByRole("grid").press("Enter");
    await page.getByLabel("How to save").selectOption("replace");
    if (row === 0) await picture(page, "editor-odd");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.locator("data-grid[aria-busy=false]").waitFor();
  }
  assert.deepEqual(await stored(table), before);
});

test("texts with characters that no field holds are edited as escapes", async () => {
  const table = await our.server.table(['{"PartitionKey":"p","RowKey":"r","Text":"a\\u0000b\\r\\nc"}']);
  const page = await openTable(our, table);
  await page.getByRole("grid").press("Enter");
  const value = page.getByLabel("Value of Text");
  assert.equal(await value.inputValue(), "a\\u0000b\\r\\nc");
  await value.fill('a\\u0000b\\r\\nc\\\\ "quoted"\\ud83d\\ude00');
  await page.getByRole("button", { name: "Save" }).click();
  await eventually(async () => (await our.server.entities(table))[0].Text, 'a\u0000b\r\nc\\ "quoted"😀');
});

test("CSV is read as Storage Explorer wrote it, with its traps", async () => {
  const table = await our.server.table();
  const page = await openTable(our, table);
  const rows = [
    "PartitionKey;RowKey;Timestamp;Age;Age@type;Name;Name@type;Note;Note@type",
    "p;1;2026-01-01T00:00:00.000Z;5;Int32;Mary;Edm.String;;Edm.String", // types with and without the prefix
    "p;2;2026-01-01T00:00:00.000Z;6;;Tom;;;", // a blank type is the first of its column; blank text and type are absent
    'p;3;;;;"two\r\nlines; ""quoted""";String', // a short row
    "p;4;;7;Int64;a\rb;String", // a carriage return without quotes
    "p;5;;x;Int32;bad;String;;", // no number
    "p;6;;1;Int32;a;String;;;extra", // more than there are columns
  ];
  const { summary, problems } = await importInto(page, "old.csv", `\ufeff${rows.join("\r\n")}\r\n`);
  assert.equal(summary, "4 written, 2 failed.");
  assert.match(problems[0], /^Row 5: Age: x is not an Edm\.Int32/);
  assert.match(problems[1], /^Row 6: /);
  const found = (await our.server.entities(table)).map(({ RowKey, Age, Name, Note, ...rest }) => [
    RowKey,
    Age,
    rest["Age@odata.type"],
    Name,
    Note,
  ]);
  assert.deepEqual(found, [
    ["1", 5, undefined, "Mary", ""],
    ["2", 6, undefined, "Tom", undefined],
    ["3", undefined, undefined, 'two\r\nlines; "quoted"', undefined],
    ["4", "7", "Edm.Int64", "a\rb", undefined],
  ]);
});

test("what cannot be stored faithfully is refused, line by line", async () => {
  const table = await our.server.table([{ PartitionKey: "p", RowKey: "there", A: 1 }]);
  const page = await openTable(our, table);
  const lines = [
    '{"PartitionKey":"p","RowKey":"1","A":1}',
    '{"PartitionKey":"p","RowKey":"2","A":9007199254740993}',
    '{"PartitionKey":"p","RowKey":"3","A":[1]}',
    "not json",
    '{"PartitionKey":"p","A":1}',
    '{"PartitionKey":"p","RowKey":"4","A@odata.type":"Edm.Guid","A":"x"}',
    '{"PartitionKey":"p","RowKey":"there","A":2}',
    '{"PartitionKey":"p","RowKey":"bad/key"}',
  ];
  const { summary, problems } = await importInto(page, "some.ndjson", lines.join("\n"));
  assert.equal(summary, "1 written, 1 already there, 6 failed.");
  assert.deepEqual(problems.map((problem) => problem.split(":")[0]).sort(), [
    "Line 2",
    "Line 3",
    "Line 4",
    "Line 5",
    "Line 6",
    "Line 8",
  ]);
  assert.deepEqual(
    (await our.server.entities(table)).map(({ RowKey, A }) => [RowKey, A]),
    [
      ["1", 1],
      ["there", 1],
    ],
  );
});

test("a file of ten thousand lines comes in, in change sets", async () => {
  const table = await our.server.table();
  const page = await openTable(our, table);
  const lines = Array.from({ length: 10_000 }, (_, index) =>
    JSON.stringify({ PartitionKey: `p${Math.floor(index / 3000)}`, RowKey: String(index), Number: index }),
  );
  const { summary } = await importInto(page, "many.ndjson", lines.join("\n"));
  assert.equal(summary, "10,000 written.");
  const file = await exportOf(page, "ndjson");
  assert.equal(file.toString().trim().split("\n").length, 10_000);
});

test("CSV is read the same in pieces of any length", async () => {
  const page = await open(our, "");
  const text = 'PartitionKey,RowKey,A,A@type\r\np,"r ""1"", two\r\nlines\r",1,Int32\np,2\rb,"",String\r\n\r\np,3,"x","String"';
  const expected = [
    ["PartitionKey", "RowKey", "A", "A@type"],
    ["p", 'r "1", two\r\nlines\r', "1", "Int32"],
    ["p", "2\rb", "", "String"],
    ["p", "3", "x", "String"],
  ];
  const results = await page.evaluate(async (whole) => {
    const { CsvReader } = await import("./core/csv.js");
    return Array.from({ length: whole.length }, (_, index) => {
      const reader = new CsvReader();
      const rows = [];
      for (let at = 0; at < whole.length; at += index + 1) rows.push(...reader.push(whole.slice(at, at + index + 1)));
      return [...rows, ...reader.push("", true)];
    });
  }, text);
  for (const [index, rows] of results.entries()) assert.deepEqual(rows, expected, `pieces of ${index + 1}`);
});

test("JSON is read as the browser reads it, but for its numbers", async () => {
  const page = await open(our, "");
  const wrong = await page.evaluate(async () => {
    const { JsonNumber, parseJson } = await import("./core/json.js");
    const plain = (value) => {
      if (value instanceof JsonNumber) return Number(value.text);
      if (value instanceof Map) return Object.fromEntries([...value].map(([name, member]) => [name, plain(member)]));
      return Array.isArray(value) ? value.map(plain) : value;
    };
    const texts = ['{"a":[1,-0.5e+3,true,false,null,{}],"\\u0041\\n\\"\\\\":"\\ud83d\\ude00\\/"}', ' [ ] ', '"\\\\"', "[[[1]]]", '{"__proto__":1}'];
    const refused = ['{"a":1,}', "[1 2]", '"\\x"', "01", "{a:1}", "", '"open', "[1]]", `"a${String.fromCharCode(10)}b"`, "nul", '{"a":1,"a":2}', "[".repeat(100)];
    const differ = texts.filter((text) => JSON.stringify(plain(parseJson(text))) !== JSON.stringify(JSON.parse(text)));
    const accepted = refused.filter((text) => {
      try {
        parseJson(text);
        return true;
      } catch {
        return false;
      }
    });
    return [...differ, ...accepted];
  });
  assert.deepEqual(wrong, []);
});
