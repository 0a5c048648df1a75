// Shared access signatures (SAS): builds a token, and inspects another.

import { h } from "../core/dom.js";
import { currentRoute } from "../core/route.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { paneHead } from "../parts/controls.js";
import { SasBuilder } from "../parts/sas-builder.js";
import { SasInspector } from "../parts/sas-inspector.js";

class SasTokensPane extends View {
  account = currentRoute().account || session.account;

  build() {
    const inspector = Object.assign(new SasInspector(), { account: this.account });
    const builder = Object.assign(new SasBuilder(), { account: this.account });
    builder.addEventListener("built", (event) => inspector.use(/** @type {CustomEvent} */ (event).detail));
    return [
      paneHead("SAS tokens"),
      h(
        "div",
        { class: "halves" },
        h("section", { class: "card" }, h("h2", {}, "Build a token"), builder),
        h("section", { class: "card" }, h("h2", {}, "Inspect a token"), inspector),
      ),
    ];
  }
}

customElements.define("sas-tokens-pane", SasTokensPane);
