// The way to the server: addresses relative to the page, the token, and whether the server answers.

import { errorOf, LostError, RequestError } from "./errors.js";

/** The admin listener's root, whatever prefix a proxy adds. */
const ROOT = new URL("../", document.baseURI);
const TOKEN = "rowhouse-token";
/** The longest wait for an answer. */
const TIMEOUT_MS = 60_000;
const RETRY_MS = 2_000;

/** Events: `lost`, `back`, `refused` (the token is missing or wrong). */
class Connection extends EventTarget {
  isLost = false;

  /** The token, which is kept for this tab. */
  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }

  set token(token) {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  }

  /**
   * Sends a request.
   * @param {string} method
   * @param {string} path relative to the root, percent-encoded
   * @param {Options} [options]
   * @returns {Promise<Response>}
   * @throws {RequestError | LostError}
   */
  async send(method, path, options = {}) {
    const url = new URL(path, ROOT);
    url.search = queryOf(options.query ?? {});
    const headers = new Headers(options.headers);
    if (this.token) headers.set("authorization", `Bearer ${this.token}`);
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
    const response = await this.#fetch(url, {
      method,
      headers,
      body: options.body,
      signal,
      cache: "no-store",
      credentials: "omit",
      // Nothing of ours redirects.
      redirect: "error",
    });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status === 401) this.dispatchEvent(new Event("refused"));
    throw error;
  }

  /** Sends a request and reads JSON. @param {string} method @param {string} path @param {Options} [options] @returns {Promise<any>} */
  async json(method, path, options) {
    const response = await this.send(method, path, options);
    return response.json();
  }

  /** Sends and reads JSON. @param {string} method @param {string} path @param {unknown} document @param {Options} [options] @returns {Promise<any>} */
  exchange(method, path, document, options = {}) {
    return this.json(method, path, {
      ...options,
      body: JSON.stringify(document),
      headers: { "content-type": "application/json" },
    });
  }

  /** @param {URL} url @param {RequestInit} init */
  async #fetch(url, init) {
    try {
      const response = await fetch(url, init);
      // What a proxy answers when the server behind it is away.
      if (response.status === 502 || response.status === 504) throw new LostError();
      return response;
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      this.#lost();
      throw new LostError();
    }
  }

  #lost() {
    if (this.isLost) return;
    this.isLost = true;
    this.dispatchEvent(new Event("lost"));
    this.#watch();
  }

  async #watch() {
    while (this.isLost) {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      const answer = await fetch(new URL("livez", ROOT), {
        cache: "no-store",
        signal: AbortSignal.timeout(RETRY_MS),
      }).catch(() => null);
      if (answer?.ok) this.isLost = false;
    }
    this.dispatchEvent(new Event("back"));
  }
}

/** @param {Record<string, string | number | undefined>} query */
function queryOf(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
}

export const connection = new Connection();
export { RequestError };
