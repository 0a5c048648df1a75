// Asks for the admin token, which is kept for this tab only.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { RequestError } from "../core/errors.js";
import { session } from "../core/session.js";
import { field, input } from "./controls.js";
import { Modal } from "./modal.js";

let isOpen = false;

/** @returns {Promise<boolean>} whether the server accepted a token; false as well if the dialog is open already */
export async function signIn() {
  if (isOpen) return false;
  isOpen = true;
  let isAccepted = false;
  const token = input({ type: "password", name: "token", autofocus: true, class: "mono" });
  const modal = new Modal(
    "Sign in",
    [
      h("p", {}, "The console needs the admin token of this server."),
      field(
        "Admin token",
        token,
        "The server's --admin-token (ROWHOUSE_ADMIN_TOKEN). It is kept in this tab until you close it.",
      ),
    ],
    {
      action: {
        text: "Sign in",
        act: async () => {
          await tryToken(token.value.trim());
          isAccepted = true;
        },
      },
    },
  );
  modal.dismiss.hidden = true;
  modal.dialog.addEventListener("cancel", (event) => event.preventDefault());
  modal.open();
  await modal.closed;
  isOpen = false;
  return isAccepted;
}

/** @param {string} token */
async function tryToken(token) {
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Error("A token has visible ASCII characters only.");
  connection.token = token;
  try {
    await session.load();
  } catch (error) {
    connection.token = "";
    if (error instanceof RequestError && error.status === 401)
      throw new RequestError(401, error.code, "That is not the token of this server.", error.requestId);
    throw error;
  }
}
