import { View } from "../core/view.js";
export class ExplainView extends View { account=""; table=""; update(/** @type {string} */ filter) { this.dataset.f = filter; } }
customElements.define("explain-view", ExplainView);
