// What the server says of itself, and which account is chosen.

import { connection } from "./connection.js";
import { InputError, RequestError } from "./errors.js";

const CHOSEN = "rowhouse-account";

/** Events: `change`. */
class Session extends EventTarget {
  version = "";
  store = "";
  isReadOnly = false;
  isTestMode = false;
  hasMoreAccounts = false;
  /** @type {Account[]} */
  accounts = [];
  /** Where clients reach the Table service. */
  endpoint = "";

  /** Asks the server. @returns {Promise<void>} */
  async load() {
    const found = await connection.json("GET", "console/api/session");
    this.version = found.version;
    this.store = found.database;
    this.isReadOnly = found.readOnly;
    this.isTestMode = found.testMode;
    this.endpoint = found.tablesEndpoint;
    this.accounts = found.accounts.map((/** @type {any} */ account) => ({
      name: account.name,
      isOfSettings: account.origin === "settings",
      isDisabled: account.disabled,
      hasExtendedQueries: account.extendedQueries,
    }));
    this.hasMoreAccounts = found.moreAccounts;
    this.dispatchEvent(new Event("change"));
  }

  /** Uses a token from now on, if the server accepts it. @param {string} token @returns {Promise<void>} */
  async signIn(token) {
    if (!/^[\x21-\x7e]+$/.test(token)) throw new InputError("A token has only visible ASCII characters.");
    connection.token = token;
    try {
      await this.load();
    } catch (error) {
      if (!(error instanceof RequestError && error.status === 401)) throw error;
      connection.token = "";
      throw new RequestError(401, error.code, "This is not the token of this server.", error.requestId);
    }
  }

  /** The chosen account, which this tab remembers. */
  get account() {
    const chosen = sessionStorage.getItem(CHOSEN);
    const found = this.accounts.find((account) => account.name === chosen) ?? this.accounts[0];
    return found?.name ?? "";
  }

  set account(name) {
    sessionStorage.setItem(CHOSEN, name);
    this.dispatchEvent(new Event("change"));
  }
}

export const session = new Session();
