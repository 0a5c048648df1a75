// The first program that a reader runs does what its comments say.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server } from "./server.js";

const PAGE = readFileSync(new URL("../../../../docs/tutorials/first-steps.md", import.meta.url), "utf8");
const PROGRAM = /```javascript\n(.*?)```/s.exec(PAGE)[1];
const FOLDER = fileURLToPath(new URL("..", import.meta.url));

test("the program prints what it says, and does so again", async () => {
  const server = new Server();
  server.account = "devstoreaccount1";
  server.keys = [/AccountKey=([^;]+)/.exec(PROGRAM)[1]];
  const expected = [...PROGRAM.matchAll(/console\.log\(.*\); \/\/ (.*)/g)].map(([, line]) => line);
  assert.equal(expected.length, 2);
  await server.start();
  try {
    const program = PROGRAM.replace("http://127.0.0.1:10002", server.origin);
    assert.notEqual(program, PROGRAM);
    for (let turn = 0; turn < 2; turn += 1) {
      const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { cwd: FOLDER, timeout: 60_000 });
      assert.deepEqual((await run).stdout.trimEnd().split("\n"), expected);
    }
  } finally {
    await server.stop();
  }
});
