// What some servers can do with a table beyond the service. Each is offered where the session names it.

import { session } from "../core/session.js";
import { editExpiry } from "./expiry-dialog.js";
import { editIndexes } from "./indexes-dialog.js";
import { editView } from "./view-dialog.js";

/** @type {TableFeature[]} */
const FEATURES = [
  { id: "indexes", title: "Indexes", open: editIndexes },
  { id: "expiry", title: "Expiry", open: editExpiry },
  { id: "views", title: "SQL view", open: editView },
];

export const tableFeatures = () => FEATURES.filter(({ id }) => session.features.has(id));
