// The service properties of an account: the document, and its CORS rules.

import { addChild, childText, parseXml, xmlText } from "./xml.js";

const QUERY = { restype: "service", comp: "properties" };
export const MAX_RULES = 5;

/** @param {TableService} service */
export const readProperties = (service) => service.readXml("", QUERY);

/** @param {TableService} service @param {string} text */
export const writeProperties = (service, text) => service.writeXml("", QUERY, text);

/** @param {string} text @returns {CorsRule[]} */
export function rulesOf(text) {
  return Array.from(parseXml(text).getElementsByTagName("CorsRule"), (rule) => ({
    origins: childText(rule, "AllowedOrigins"),
    methods: childText(rule, "AllowedMethods"),
    headers: childText(rule, "AllowedHeaders"),
    exposed: childText(rule, "ExposedHeaders"),
    maxAge: childText(rule, "MaxAgeInSeconds"),
  }));
}

/** The document with other rules. @param {string} text @param {CorsRule[]} rules @returns {string} */
export function withRules(text, rules) {
  const document = parseXml(text);
  const root = document.documentElement;
  let cors = Array.from(root.children).find((child) => child.localName === "Cors");
  if (!cors) cors = addChild(root, "Cors");
  cors.replaceChildren();
  for (const rule of rules) {
    const element = addChild(cors, "CorsRule");
    addChild(element, "AllowedOrigins", rule.origins);
    addChild(element, "AllowedMethods", rule.methods);
    addChild(element, "AllowedHeaders", rule.headers);
    addChild(element, "ExposedHeaders", rule.exposed);
    addChild(element, "MaxAgeInSeconds", rule.maxAge);
  }
  return xmlText(root);
}

/** The document with each element on a line of its own. @param {string} text */
export function indented(text) {
  const root = parseXml(text).documentElement;
  indent(root, 0);
  return new XMLSerializer().serializeToString(root);
}

/** @param {Element} element @param {number} depth */
function indent(element, depth) {
  const children = Array.from(element.children);
  if (!children.length) return;
  element.replaceChildren(
    ...children.flatMap((child) => [`\n${"  ".repeat(depth + 1)}`, child]),
    `\n${"  ".repeat(depth)}`,
  );
  for (const child of children) indent(child, depth + 1);
}
