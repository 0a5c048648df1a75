// Where in the console we are: `#/pane/account/table`, so that back, forward and bookmarks work.

/** @returns {Route} */
export function currentRoute() {
  const [pane = "", account = "", table = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return { pane, account, table };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** @param {string} pane @param {...string} rest */
export function addressOf(pane, ...rest) {
  return `#/${[pane, ...rest].map(encodeURIComponent).join("/")}`;
}
