#!/usr/bin/env node
"use strict";
// Runs the program as if it were this process.

const { spawn } = require("node:child_process");
const { binary } = require("./index.js");

const UNTIL = "--until-stdin-closes";
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

const given = process.argv.slice(2);
const serves = given.length === 0 || given[0] === "serve" || given[0].startsWith("-");
// A server must end with us, even if we are killed.
const isHeld = serves && !given.includes(UNTIL);
const child = spawn(binary(), isHeld ? [...given, UNTIL] : given, {
  stdio: [isHeld ? "pipe" : "inherit", "inherit", "inherit"],
});
for (const signal of SIGNALS) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`rowhouse: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const name of SIGNALS) process.removeAllListeners(name);
  process.kill(process.pid, signal);
});
