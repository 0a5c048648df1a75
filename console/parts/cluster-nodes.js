// The nodes of a Citus cluster. Empty where the database is a single server.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { isShownHere } from "../core/errors.js";
import { View } from "../core/view.js";
import { bytes, count, errorBox, moment } from "./controls.js";

const SECONDS = 30;

export class ClusterNodes extends View {
  start() {
    this.repeat(SECONDS, () => this.#poll());
  }

  async #poll() {
    try {
      /** @type {Cluster | null} */
      const cluster = await connection.json("GET", "cluster", { signal: this.signal });
      this.replaceChildren(...(cluster ? described(cluster) : []));
    } catch (error) {
      if (isShownHere(error)) this.replaceChildren(errorBox(error));
    }
  }
}

/** @param {Cluster} cluster */
function described({ citus, nodes, unused, server }) {
  const map = server.bucketMapRead ? `this server read their shards ${moment(server.bucketMapRead)}` : "";
  const silent = server.silentNodes ? `it refuses what needs ${count(server.silentNodes)} of them` : "";
  const lanes = server.substitutedLanes ? `${count(server.substitutedLanes)} of its lanes use another node` : "";
  return [
    h("h2", {}, "Nodes"),
    h("p", { class: "quiet" }, [`Citus ${citus}`, map, silent, lanes].filter(Boolean).join(" · ")),
    h("div", { class: "cards", role: "status" }, nodes.map(cardOf)),
    unused.length ? h("p", { class: "quiet" }, `Standbys, or disabled: ${unused.join(", ")}`) : "",
  ];
}

/** @param {ClusterNode} node */
function cardOf(node) {
  const facts = node.answers
    ? [
        node.role,
        `${count(node.shards ?? 0)} shards`,
        `about ${count(node.entitiesAbout ?? 0)} entities`,
        bytes(node.bytes ?? 0),
        `${count(node.standbys ?? 0)} standbys`,
        node.holdsShards ? "" : "gets no shards",
        node.inRecovery ? "in recovery: it refuses writes" : "",
      ]
    : [node.role, `does not answer: ${node.reason}`];
  return h(
    "article",
    { class: "card" },
    h("h3", { class: "mono" }, node.address),
    h("p", { class: node.answers ? "quiet" : "message" }, facts.filter(Boolean).join(" · ")),
  );
}

customElements.define("cluster-nodes", ClusterNodes);
