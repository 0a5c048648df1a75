// The panes of the console. A new one is a line here and an element in `panes`.

import { session } from "./core/session.js";

/** @type {Pane[]} */
export const PANES = [
  {
    id: "tables",
    title: "Tables",
    tag: "tables-pane",
    load: () => import("./panes/tables-pane.js"),
    isOfAccount: true,
  },
  {
    id: "entities",
    title: "Entities",
    tag: "entities-pane",
    load: () => import("./panes/entities-pane.js"),
    isOfAccount: true,
    within: "tables",
  },
  {
    id: "sas-tokens",
    title: "SAS tokens",
    tag: "sas-tokens-pane",
    load: () => import("./panes/sas-tokens-pane.js"),
    isOfAccount: true,
  },
  {
    id: "service",
    title: "Service properties",
    tag: "service-pane",
    load: () => import("./panes/service-pane.js"),
    isOfAccount: true,
  },
  {
    id: "activity",
    title: "Activity",
    tag: "activity-pane",
    load: () => import("./panes/activity-pane.js"),
    isOfAccount: false,
  },
  {
    id: "requests",
    title: "Requests",
    tag: "requests-pane",
    load: () => import("./panes/requests-pane.js"),
    isOfAccount: false,
  },
  {
    id: "accounts",
    title: "Accounts",
    tag: "accounts-pane",
    load: () => import("./panes/accounts-pane.js"),
    isOfAccount: false,
  },
  {
    id: "snapshots",
    title: "Snapshots",
    tag: "snapshots-pane",
    load: () => import("./panes/snapshots-pane.js"),
    isOfAccount: false,
    isShown: () => session.isTestMode,
  },
];

/** @param {string} id @returns {Pane} the first pane if there is none of this id */
export function paneOf(id) {
  return PANES.find((pane) => pane.id === id && (pane.isShown?.() ?? true)) ?? PANES[0];
}
