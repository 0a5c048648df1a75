// What the files of the console are made of: types that hold, no way to markup, and files that stay small.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../../../console/", import.meta.url));
const HERE = fileURLToPath(new URL("../", import.meta.url));
const MAX_LINES = 400;
/** What turns text into markup or code, or reaches other sites. */
const FORBIDDEN =
  /innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|parseHTMLUnsafe|createContextualFragment|document\.write|\beval\(|new Function|srcdoc|javascript:|text\/html|document\.cookie|https?:\/\/(?!www\.w3\.org\/2000\/svg|schemas)[a-z]/;

const files = readdirSync(FOLDER, { recursive: true })
  .map(String)
  .filter((name) => statSync(path.join(FOLDER, name)).isFile());
const text = (name) => readFileSync(path.join(FOLDER, name), "utf8");

// The files do not depend on the store, so once is enough.
const onSqlite = { skip: process.env.DATABASE_URL ? "checked with the other store" : false };

test("types are checked", onSqlite, () => {
  execFileSync(
    process.execPath,
    [path.join(HERE, "node_modules/typescript/bin/tsc"), "--project", path.join(HERE, "tsconfig.json")],
    { stdio: "pipe", encoding: "utf8" },
  );
});

test("nothing can become markup or code", () => {
  for (const name of files.filter((file) => file.endsWith(".js"))) {
    assert.doesNotMatch(text(name), FORBIDDEN, name);
  }
  const page = text("index.html");
  assert.doesNotMatch(page, /<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?:/);
});

test("its files stay small", () => {
  for (const name of files) assert.ok(text(name).split("\n").length <= MAX_LINES, name);
});

test("every file is used", () => {
  const all = files.map((name) => text(name)).join("\n");
  for (const name of files.filter((file) => file !== "index.html")) assert.ok(all.includes(path.basename(name)), name);
});
