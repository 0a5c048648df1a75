// Errors in words. Every error that a pane shows is one of these.

/** The server answered an error. */
export class RequestError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {string} requestId */
  constructor(status, code, message, requestId) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/** The server did not answer. */
export class LostError extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

/** What somebody entered is not what was asked for. */
export class InputError extends Error {}

/** @param {unknown} error @returns {boolean} whether it only says that something was cancelled */
export function isCancelled(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * Whether a pane shows an error itself. A lost server and a refused token are shown above all panes.
 * @param {unknown} error @returns {boolean}
 */
export function isShownHere(error) {
  const isAbove = error instanceof LostError || (error instanceof RequestError && error.status === 401);
  return !isAbove && !isCancelled(error);
}

/** @param {Response} response @returns {Promise<RequestError>} */
export async function errorOf(response) {
  const text = await response.text().catch(() => "");
  const { code, message, requestId } = read(text, response.headers.get("content-type") ?? "");
  // The service's messages end with two lines of their own.
  const [words] = message.split(/\nRequestId:|\r?\nTime:/);
  const id = response.headers.get("x-ms-request-id") ?? requestId;
  return new RequestError(response.status, code || String(response.status), words || `Status ${response.status}.`, id);
}

/** @param {string} text @param {string} type @returns {{ code: string, message: string, requestId: string }} */
function read(text, type) {
  if (type.includes("xml")) return readXml(text);
  try {
    const document = JSON.parse(text);
    const error = document["odata.error"] ?? document.error ?? {};
    const message = error.message?.value ?? error.message ?? "";
    return { code: String(error.code ?? ""), message: String(message), requestId: String(error.requestId ?? "") };
  } catch {
    return { code: "", message: "", requestId: "" };
  }
}

/** @param {string} text */
function readXml(text) {
  const document = new DOMParser().parseFromString(text, "application/xml");
  const first = (/** @type {string[]} */ ...names) =>
    names.map((name) => document.getElementsByTagNameNS("*", name)[0]?.textContent).find(Boolean) ?? "";
  return { code: first("Code", "code"), message: first("Message", "message"), requestId: "" };
}

/** One line about an error. @param {unknown} error @returns {string} */
export function inWords(error) {
  if (error instanceof RequestError) return `${error.message} (${error.code}, status ${error.status})`;
  return error instanceof Error ? error.message : String(error);
}
