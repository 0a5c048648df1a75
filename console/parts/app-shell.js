// The frame of the console: top line, navigation, and the pane that the address names.

import { connection } from "../core/connection.js";
import { h } from "../core/dom.js";
import { InputError, LostError, RequestError } from "../core/errors.js";
import { addressOf, currentRoute, takeToken } from "../core/route.js";
import { session } from "../core/session.js";
import { View } from "../core/view.js";
import { PANES, paneOf } from "../panes.js";
import { button, errorBox, select } from "./controls.js";
import { signIn } from "./sign-in.js";

/** What to do about an address that no longer signs in. */
const HINT = "A server without --admin-token has another one after each start: use the address that it printed last.";

class AppShell extends View {
  /** Whether the token of an address is being tried. */
  #isEntering = false;
  top = h("div", { class: "top-state" });
  lost = h(
    "div",
    { class: "lost", role: "status", hidden: true },
    "The server does not answer. The console tries again every two seconds.",
  );
  nav = h("nav", { "aria-label": "Console" });
  main = h("main", { tabIndex: 0 });

  build() {
    const brand = h(
      "a",
      { class: "brand", href: "#/" },
      h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
      "Rowhouse",
    );
    return [
      h("header", { class: "top" }, brand, this.top),
      this.lost,
      h("div", { class: "frame" }, this.nav, this.main),
    ];
  }

  start() {
    const { signal } = this;
    addEventListener("hashchange", () => this.follow(), { signal });
    connection.addEventListener(
      "lost",
      () => {
        this.lost.hidden = false;
      },
      { signal },
    );
    connection.addEventListener("back", () => this.back(), { signal });
    connection.addEventListener("refused", () => this.ask(), { signal });
    session.addEventListener("change", () => this.update(), { signal });
    this.follow(() => this.load());
  }

  /** Goes where the address leads: a token in it signs in first. @param {() => Promise<void>} go */
  async follow(go = () => this.show()) {
    const token = takeToken();
    if (token === null) return go();
    this.#isEntering = true;
    const problem = await session.signIn(token).then(
      () => null,
      (error) => error,
    );
    this.#isEntering = false;
    if (problem instanceof LostError) this.main.replaceChildren(errorBox(problem));
    else if (problem) await this.ask(new InputError(`The token in the address: ${problem.message} ${HINT}`));
    else await this.show();
  }

  async load() {
    try {
      await session.load();
      await this.show();
    } catch (error) {
      // A refused token has its own dialog.
      if (!(error instanceof RequestError && error.status === 401)) this.main.replaceChildren(errorBox(error));
    }
  }

  async back() {
    this.lost.hidden = true;
    // What is being edited stays; its pane reads again once the dialog is closed.
    if (document.querySelector("dialog[open]")) await session.load().catch(() => {});
    else await this.load();
  }

  /** @param {unknown} [problem] why a token that was tried already is refused */
  async ask(problem) {
    if (!this.#isEntering && (await signIn(problem))) await this.load();
  }

  update() {
    const badges = [
      h("span", { class: "store" }, `${session.store === "sqlite" ? "SQLite" : "PostgreSQL"} · ${session.version}`),
      session.isReadOnly && h("span", { class: "badge" }, "read-only"),
      session.isTestMode && h("span", { class: "badge" }, "test mode"),
      connection.token && button("Sign out", () => this.signOut(), { kind: "quiet" }),
    ];
    this.top.replaceChildren(...badges.filter((badge) => badge !== false && badge !== ""));
    this.updateNav();
  }

  signOut() {
    connection.token = "";
    location.reload();
  }

  updateNav() {
    const route = currentRoute();
    const chosen = paneOf(route.pane);
    const link = (/** @type {Pane} */ pane) => {
      const isCurrent = pane.id === (chosen.within ?? chosen.id);
      const href = pane.isOfAccount ? addressOf(pane.id, session.account) : addressOf(pane.id);
      return h("li", {}, h("a", { href, "aria-current": isCurrent ? "page" : undefined }, pane.title));
    };
    const shown = PANES.filter((pane) => !pane.within && (pane.isShown?.() ?? true));
    const accounts = /** @type {[string, string][]} */ (session.accounts.map(({ name }) => [name, name]));
    const chooser = select(accounts, session.account, {
      "aria-label": "Account",
      on: { change: () => this.choose(chooser.value) },
    });
    this.nav.replaceChildren(
      h(
        "div",
        { class: "nav-group" },
        h("h2", {}, "Account"),
        chooser,
        h("ul", {}, shown.filter((pane) => pane.isOfAccount).map(link)),
      ),
      h(
        "div",
        { class: "nav-group" },
        h("h2", {}, "Server"),
        h("ul", {}, shown.filter((pane) => !pane.isOfAccount).map(link)),
      ),
    );
    this.nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** @param {string} account */
  choose(account) {
    session.account = account;
    const pane = paneOf(currentRoute().pane);
    if (pane.isOfAccount) location.hash = addressOf(pane.within ?? pane.id, account);
  }

  async show() {
    const route = currentRoute();
    const pane = paneOf(route.pane);
    if (session.accounts.some(({ name }) => name === route.account) && route.account !== session.account)
      session.account = route.account;
    this.updateNav();
    document.title = `${route.table || pane.title} · Rowhouse`;
    try {
      await pane.load();
      this.main.replaceChildren(document.createElement(pane.tag));
      this.main.dataset.pane = pane.id;
    } catch {
      this.main.replaceChildren(
        errorBox(new Error("This part of the console could not be loaded. Load the page again.")),
      );
    }
  }
}

customElements.define("app-shell", AppShell);
