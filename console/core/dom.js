// Builds elements. Text becomes text nodes and properties of elements, never markup.

const ATTRIBUTES = new Set(["role", "for", "list", "id", "viewBox"]);

/** Makes an element with properties, listeners (`on`) and children. @type {Maker} */
export const h = (
  /** @type {string} */ tag,
  /** @type {Props} */ props = {},
  /** @type {(Child | Child[])[]} */ ...children
) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) set(element, name, value);
  element.append(...present(children));
  return /** @type {any} */ (element);
};

/** @param {HTMLElement} element @param {string} name @param {any} value */
function set(element, name, value) {
  if (value === undefined || value === null) return;
  if (name === "class") element.className = value;
  else if (name === "on")
    for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
  else if (ATTRIBUTES.has(name) || name.includes("-")) element.setAttribute(name, String(value));
  else Object.assign(element, { [name]: value });
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
export function present(children) {
  return /** @type {(Node | string)[]} */ (
    children.flat().filter((child) => child !== null && child !== undefined && child !== false)
  );
}

/**
 * Makes an element of an SVG picture; all props are attributes.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Node | string)} children
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

let ids = 0;

/** An id that no other element of the page has. */
export function newId() {
  ids += 1;
  return `e${ids}`;
}
