// The stored access policies of a table.

import { segment } from "./address.js";
import { addChild, childText, newXml, parseXml, xmlText } from "./xml.js";

const QUERY = { comp: "acl" };
export const MAX_POLICIES = 5;

/** @param {TableService} service @param {string} table @returns {Promise<Policy[]>} */
export async function readPolicies(service, table) {
  const document = parseXml(await service.readXml(segment(table), QUERY));
  return Array.from(document.getElementsByTagName("SignedIdentifier"), (identifier) => {
    const policy = identifier.getElementsByTagName("AccessPolicy")[0] ?? identifier;
    return {
      id: childText(identifier, "Id"),
      start: childText(policy, "Start"),
      expiry: childText(policy, "Expiry"),
      permission: childText(policy, "Permission"),
    };
  });
}

/** @param {TableService} service @param {string} table @param {Policy[]} policies */
export async function writePolicies(service, table, policies) {
  const xml = newXml("SignedIdentifiers");
  for (const { id, start, expiry, permission } of policies) {
    const identifier = addChild(xml.documentElement, "SignedIdentifier");
    addChild(identifier, "Id", id);
    const policy = addChild(identifier, "AccessPolicy");
    if (start) addChild(policy, "Start", start);
    if (expiry) addChild(policy, "Expiry", expiry);
    if (permission) addChild(policy, "Permission", permission);
  }
  await service.writeXml(segment(table), QUERY, xmlText(xml));
}
