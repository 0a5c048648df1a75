// Somebody else changed the entity that was edited: both versions side by side, a choice for each property.

import { shortType } from "../core/edm.js";
import { h, newId } from "../core/dom.js";
import { isSame } from "../core/entity.js";
import { InputError, RequestError } from "../core/errors.js";
import { visible } from "../core/visible.js";
import { Modal } from "./modal.js";

/**
 * Resolves once the chosen values are saved; throws a cancellation if the dialog was closed.
 * @param {TableService} service
 * @param {string} table
 * @param {Entity} base what was read before the change
 * @param {Entity} mine what should be saved
 */
export async function resolveConflict(service, table, base, mine) {
  for (;;) {
    const theirs = await service.get(table, base.partitionKey, base.rowKey);
    if (!theirs) throw new InputError("This entity has been deleted meanwhile. To bring it back, clone it.");
    const chosen = await choose(base, mine, theirs);
    try {
      return await service.replace(table, { ...mine, etag: theirs.etag, properties: chosen });
    } catch (error) {
      // It has changed once more.
      if (!(error instanceof RequestError && error.code === "UpdateConditionNotSatisfied")) throw error;
    }
  }
}

/** @param {Entity} base @param {Entity} mine @param {Entity} theirs @returns {Promise<Map<string, Value>>} */
async function choose(base, mine, theirs) {
  const names = [...new Set([...mine.properties.keys(), ...theirs.properties.keys()])];
  const choices = names.map(
    (name) => new Choice(name, base.properties.get(name), mine.properties.get(name), theirs.properties.get(name)),
  );
  const differing = choices.filter(({ isSame }) => !isSame);
  /** @type {Map<string, Value> | null} */
  let chosen = null;
  const modal = new Modal(
    "Changed by somebody else",
    [
      h(
        "p",
        {},
        `This entity was changed at ${theirs.timestamp}, after you had opened it. Choose a value for each property that differs.`,
      ),
      h(
        "div",
        { class: "scroll-x" },
        h(
          "table",
          { class: "plain conflict" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Property", "Yours", "On the server"].map((text) => h("th", { scope: "col" }, text)),
            ),
          ),
          h(
            "tbody",
            {},
            differing.map((choice) => choice.row()),
          ),
        ),
      ),
      differing.length === 0 && h("p", {}, "No property differs."),
    ],
    {
      wide: true,
      action: {
        text: "Save this choice",
        act: () => {
          chosen = result(choices);
        },
      },
    },
  );
  modal.open();
  await modal.closed;
  if (!chosen) throw new DOMException("The conflict was left as it is.", "AbortError");
  return chosen;
}

/** @param {Choice[]} choices @returns {Map<string, Value>} */
function result(choices) {
  const properties = new Map();
  for (const choice of choices) if (choice.value) properties.set(choice.name, choice.value);
  return properties;
}

class Choice {
  #group = newId();

  /** @param {string} name @param {Value | undefined} base @param {Value | undefined} mine @param {Value | undefined} theirs */
  constructor(name, base, mine, theirs) {
    this.name = name;
    this.mine = mine;
    this.theirs = theirs;
    this.isSame = isSame(mine, theirs);
    // What only they changed is theirs; what we changed is ours until the reader says otherwise.
    this.isMine = !isSame(mine, base);
  }

  get value() {
    return this.isMine ? this.mine : this.theirs;
  }

  row() {
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, this.name),
      this.#side(true, this.mine),
      this.#side(false, this.theirs),
    );
  }

  /** @param {boolean} isMine @param {Value | undefined} value */
  #side(isMine, value) {
    const radio = h("input", {
      type: "radio",
      name: this.#group,
      checked: this.isMine === isMine,
      on: {
        change: () => {
          this.isMine = isMine;
        },
      },
      "aria-label": `${this.name}: ${isMine ? "yours" : "on the server"}`,
    });
    const shown = value
      ? [h("span", { class: "mono" }, visible(value.text)), h("small", {}, shortType(value.type))]
      : [h("em", {}, "not there")];
    return h("td", {}, h("label", { class: "check" }, radio, h("span", {}, shown)));
  }
}
