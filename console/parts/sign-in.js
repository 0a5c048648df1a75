// Asks for the admin token, which is kept for this tab only.

import { h } from "../core/dom.js";
import { session } from "../core/session.js";
import { field, input } from "./controls.js";
import { Modal } from "./modal.js";

let isOpen = false;

/**
 * @param {unknown} [problem] why a token that was tried already is refused
 * @returns {Promise<boolean>} whether the server accepted a token; false as well if the dialog is open already
 */
export async function signIn(problem) {
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
        "The value of --admin-token (ROWHOUSE_ADMIN_TOKEN). This tab keeps it until you close the tab.",
      ),
    ],
    {
      action: {
        text: "Sign in",
        act: async () => {
          await session.signIn(token.value.trim());
          isAccepted = true;
        },
      },
    },
  );
  modal.dismiss.hidden = true;
  modal.dialog.addEventListener("cancel", (event) => event.preventDefault());
  modal.open();
  if (problem) modal.show(problem);
  await modal.closed;
  isOpen = false;
  return isAccepted;
}
