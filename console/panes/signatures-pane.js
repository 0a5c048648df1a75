// Shared access signatures: builds one, inspects another.

import { h } from "../core/dom.js";
import { currentRoute } from "../core/route.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { paneHead } from "../parts/controls.js";
import { SignatureBuilder } from "../parts/signature-builder.js";
import { SignatureInspector } from "../parts/signature-inspector.js";

class SignaturesPane extends View {
  account = currentRoute().account || session.account;

  build() {
    const inspector = Object.assign(new SignatureInspector(), { account: this.account });
    const builder = Object.assign(new SignatureBuilder(), { account: this.account });
    builder.addEventListener("built", (event) => inspector.use(/** @type {CustomEvent} */ (event).detail));
    return [
      paneHead("Signatures"),
      h(
        "div",
        { class: "halves" },
        h("section", { class: "card" }, h("h2", {}, "Build a signature"), builder),
        h("section", { class: "card" }, h("h2", {}, "Why is one refused?"), inspector),
      ),
    ];
  }
}

customElements.define("signatures-pane", SignaturesPane);
