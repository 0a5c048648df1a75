// The console of another server, over TLS, behind nginx and below a path of its own.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { PATIENCE, column, consoleForThisFile, open, picture } from "./console.js";

const our = consoleForThisFile();
const NGINX = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"].find(existsSync);
const without = NGINX ? false : "nginx not found";
let proxy;

after(async () => {
  if (!proxy) return;
  const ended = new Promise((resolve) => proxy.process.once("exit", resolve));
  proxy.process.kill("SIGTERM");
  await ended;
  rmSync(proxy.folder, { recursive: true });
});

async function start() {
  const folder = mkdtempSync(path.join(tmpdir(), "rowhouse-nginx-"));
  execFileSync(
    "openssl",
    [
      "req",
      "-x509",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-days",
      "2",
      "-subj",
      "/CN=localhost",
      "-keyout",
      `${folder}/key.pem`,
      "-out",
      `${folder}/cert.pem`,
    ],
    { stdio: "ignore" },
  );
  const port = await freePort();
  const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((kind) => `${kind}_temp_path ${folder}/${kind};`)
    .join(" ");
  // Without it, root's workers become somebody who may not enter the folder.
  const user = process.getuid() === 0 ? "user root;" : "";
  writeFileSync(
    `${folder}/nginx.conf`,
    `${user} pid ${folder}/pid; error_log ${folder}/log; worker_processes 1; events {}
http { ${places} access_log off;
  server { listen 127.0.0.1:${port} ssl; ssl_certificate ${folder}/cert.pem; ssl_certificate_key ${folder}/key.pem; client_max_body_size 8m; large_client_header_buffers 4 64k;
    location /ops/ { proxy_pass ${our.server.admin}/; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme; proxy_http_version 1.1; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k; }
  } }`,
  );
  const process_ = spawn(NGINX, ["-e", `${folder}/log`, "-c", `${folder}/nginx.conf`, "-g", "daemon off;"], {
    stdio: "inherit",
  });
  const end = Date.now() + PATIENCE;
  while (!(await listens(port))) {
    if (Date.now() > end) {
      process_.kill("SIGTERM");
      throw new Error("nginx did not begin to listen");
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return { process: process_, folder, address: `https://localhost:${port}/ops` };
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function listens(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => (socket.destroy(), resolve(true)));
    socket.on("error", () => resolve(false));
  });
}

test("all of it works over TLS and below a path", { skip: without }, async () => {
  proxy = await start();
  const table = await our.server.table();
  const page = await open(our, `#/tables/${our.server.account}`, { address: proxy.address });
  await page.getByRole("gridcell", { name: table, exact: true }).dblclick();
  await page.getByRole("button", { name: "Add entity" }).click();
  const key = "it's 100% \u00e9 +&=";
  await page.getByLabel("PartitionKey").fill(key);
  await page.getByLabel("RowKey").fill(key);
  await page.getByRole("button", { name: "Add", exact: true }).last().click();
  await page.getByRole("gridcell", { name: key, exact: true }).first().waitFor();
  await page.getByRole("gridcell", { name: key, exact: true }).first().dblclick();
  await page.getByRole("button", { name: "Add property" }).click();
  await page.getByLabel("Property name").fill("A");
  await page.getByLabel("Value of the new property").fill("b");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("columnheader", { name: /^A\b/ }).waitFor();
  assert.deepEqual(await column(page, "A"), ["b"]);
  await page.getByRole("button", { name: "Delete all found" }).click();
  await page.getByText("1 found").waitFor();
  await page.getByLabel(`Type ${table} to confirm`).fill(table);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("1 deleted.").waitFor();
  await picture(page, "behind-nginx");
});
