// Where in the console we are: `#/pane/account/table`, so that back, forward and bookmarks work.

/** @returns {Route} */
export function currentRoute() {
  const [pane = "", account = "", table = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return { pane, account, table };
}

/**
 * The token of an address such as `#token=…`, which the server prints at its start. It is taken out of the address, so
 * that neither the history nor a bookmark keeps it.
 * @returns {string | null} null if the address has none
 */
export function takeToken() {
  const found = /^#token=(.*)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  return decoded(found[1]);
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
