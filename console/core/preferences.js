// What this browser remembers of a table: its columns and their widths. Nothing of an entity is kept.

const MAX_NAMES = 2000;

/** @param {string} account @param {string} table */
const key = (account, table) => `rowhouse-columns/${account}/${table.toLowerCase()}`;

/** @param {string} account @param {string} table @returns {Preferences} */
export function preferencesOf(account, table) {
  try {
    const found = JSON.parse(localStorage.getItem(key(account, table)) ?? "{}");
    return { hidden: Array.isArray(found.hidden) ? found.hidden.map(String) : [], widths: { ...found.widths } };
  } catch {
    return { hidden: [], widths: {} };
  }
}

/** @param {string} account @param {string} table @param {Preferences} preferences */
export function remember(account, table, { hidden, widths }) {
  const kept = { hidden: hidden.slice(0, MAX_NAMES), widths };
  try {
    localStorage.setItem(key(account, table), JSON.stringify(kept));
  } catch {
    // The browser has no room left or keeps nothing; the table is shown all the same.
  }
}
