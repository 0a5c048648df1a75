// The XML documents of the Table service: reading and writing them as trees.

import { InputError } from "./errors.js";

/** @param {string} text @returns {Document} @throws {InputError} */
export function parseXml(text) {
  const document = new DOMParser().parseFromString(text, "application/xml");
  const wrong = document.querySelector("parsererror");
  if (wrong) throw new InputError(`This is not XML: ${(wrong.textContent ?? "").split("\n")[1] ?? ""}`);
  return document;
}

/** The text of the first child of this name. @param {Element} element @param {string} name */
export function childText(element, name) {
  return Array.from(element.children).find((child) => child.localName === name)?.textContent ?? "";
}

/** @param {Node} node */
export function xmlText(node) {
  return `<?xml version="1.0" encoding="utf-8"?>${new XMLSerializer().serializeToString(node)}`;
}

/** Adds an element with a text. @param {Element} parent @param {string} name @param {string} [text] */
export function addChild(parent, name, text) {
  const child = parent.ownerDocument.createElement(name);
  if (text !== undefined) child.textContent = text;
  parent.append(child);
  return child;
}

/** @param {string} root */
export function newXml(root) {
  return document.implementation.createDocument(null, root);
}
