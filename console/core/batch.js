// Change sets: their body, and their answer.

import { entityAddress, segment } from "./address.js";
import { jsonOfEntity, jsonOfProperties } from "./entity.js";
import { LostError, RequestError } from "./errors.js";

const METHODS = { insert: "POST", replace: "PUT", merge: "MERGE", delete: "DELETE" };
const LINE = "\r\n";

/** @param {string} account @param {Write[]} writes @returns {{ type: string, body: string }} */
export function batchBody(account, writes) {
  const boundary = crypto.randomUUID?.() ?? `${Date.now()}${Math.random()}`.replace(".", "");
  const outer = `batch_${boundary}`;
  const inner = `changeset_${boundary}`;
  const root = `${location.origin}/${account}/`;
  const parts = writes.map((write) =>
    [
      `--${inner}`,
      "Content-Type: application/http",
      "Content-Transfer-Encoding: binary",
      "",
      requestOf(root, write),
      "",
    ].join(LINE),
  );
  const head = [`--${outer}`, `Content-Type: multipart/mixed; boundary=${inner}`, "", ""].join(LINE);
  return {
    type: `multipart/mixed; boundary=${outer}`,
    body: `${head}${parts.join("")}--${inner}--${LINE}--${outer}--${LINE}`,
  };
}

/** @param {string} root @param {Write} write */
function requestOf(root, { kind, table, entity }) {
  const path = kind === "insert" ? segment(table) : entityAddress(table, entity.partitionKey, entity.rowKey);
  const lines = [
    `${METHODS[kind]} ${root}${path} HTTP/1.1`,
    "Accept: application/json;odata=nometadata",
    "DataServiceVersion: 3.0",
  ];
  if (kind === "delete") return [...lines, `If-Match: ${entity.etag || "*"}`, "", ""].join(LINE);
  const body = kind === "merge" ? `{${jsonOfProperties(entity.properties).join(",")}}` : jsonOfEntity(entity);
  return [...lines, "Content-Type: application/json", "Prefer: return-no-content", "", body].join(LINE);
}

/** Throws the error that a change set was refused with. @param {string} text the body of the answer @param {number} count the number of its writes */
export function readBatch(text, count) {
  const statuses = [...text.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => status);
  for (const status of statuses) {
    if (Number(status) < 400) continue;
    const found = /^\{"odata\.error".*$/m.exec(text);
    const error = found ? JSON.parse(found[0])["odata.error"] : null;
    const [message] = String(error?.message?.value ?? `Status ${status}.`).split("\n");
    const id = /RequestId:([0-9a-f-]{36})/.exec(text)?.[1] ?? "";
    throw new RequestError(Number(status), error?.code ?? status, message.replace(/^\d+:/, ""), id);
  }
  // Such as the page of a proxy.
  if (statuses.length !== count) throw new LostError();
}
