// Adds, clones and changes an entity.

import { h } from "../core/dom.js";
import { isSame } from "../core/entity.js";
import { InputError, RequestError } from "../core/errors.js";
import { button, field, input, select } from "./controls.js";
import { resolveConflict } from "./conflict.js";
import { Modal } from "./modal.js";
import { PropertyRow } from "./property-row.js";

/** @param {TableService} service @param {string} table @param {Entity | null} template what is cloned @returns {Promise<boolean>} whether it was added */
export function addEntity(service, table, template) {
  return new Editor(service, table, template, true).open();
}

/** @param {TableService} service @param {string} table @param {Entity} entity @returns {Promise<boolean>} whether it was changed */
export function editEntity(service, table, entity) {
  return new Editor(service, table, entity, false).open();
}

class Editor {
  #isSaved = false;
  #rows = h("div", { class: "property-rows" });
  #wayOfSaving = select(
    [
      ["merge", "Merge: write only the changed properties"],
      ["replace", "Replace: write these properties and drop all others"],
    ],
    "merge",
  );

  /** @param {TableService} service @param {string} table @param {Entity | null} entity @param {boolean} isNew */
  constructor(service, table, entity, isNew) {
    this.service = service;
    this.table = table;
    this.entity = entity;
    this.isNew = isNew;
    const key = (/** @type {string} */ value) => input({ class: "mono", value, readOnly: !isNew });
    this.partitionKey = key(entity?.partitionKey ?? "");
    this.rowKey = key(entity?.rowKey ?? "");
  }

  async open() {
    for (const [name, value] of this.entity?.properties ?? []) this.#add(name, value);
    const title = this.isNew ? (this.entity ? "Clone entity" : "Add entity") : "Edit entity";
    const modal = new Modal(
      title,
      [
        h("div", { class: "columns-2" }, field("PartitionKey", this.partitionKey), field("RowKey", this.rowKey)),
        !this.isNew && h("p", { class: "quiet" }, `Timestamp ${this.entity?.timestamp} · ETag ${this.entity?.etag}`),
        this.#rows,
        button("Add property", () => this.#addNew()),
        !this.isNew && field("How to save", this.#wayOfSaving),
      ],
      { wide: true, action: { text: this.isNew ? "Add" : "Save", act: () => this.#save() } },
    );
    this.#rows.addEventListener("remove", (event) => this.#remove(/** @type {PropertyRow} */ (event.target)));
    modal.open();
    if (this.isNew) (this.entity ? this.rowKey : this.partitionKey).focus();
    else if (this.#rows.firstElementChild) /** @type {PropertyRow} */ (this.#rows.firstElementChild).focusValue();
    await modal.closed;
    return this.#isSaved;
  }

  /** @param {string} name @param {Value} value */
  #add(name, value) {
    this.#rows.append(Object.assign(new PropertyRow(), { name, value, isNew: false }));
  }

  #addNew() {
    const row = new PropertyRow();
    this.#rows.append(row);
    row.focusName();
  }

  /** @param {PropertyRow} row */
  #remove(row) {
    // A merge cannot take a property away.
    if (!row.isNew) this.#wayOfSaving.value = "replace";
    row.remove();
  }

  /** @returns {Map<string, Value>} */
  #read() {
    const properties = new Map();
    for (const row of this.#rows.children) {
      const found = /** @type {PropertyRow} */ (row).check();
      // The row shows what is wrong.
      if (!found) throw new DOMException("A property is wrong.", "AbortError");
      if (properties.has(found.name)) throw new InputError(`There are two properties named ${found.name}.`);
      properties.set(found.name, found.value);
    }
    return properties;
  }

  async #save() {
    const mine = {
      partitionKey: this.partitionKey.value,
      rowKey: this.rowKey.value,
      timestamp: "",
      etag: this.entity?.etag ?? "",
      properties: this.#read(),
    };
    if (this.isNew) await this.service.insert(this.table, mine);
    else await this.#change(mine);
    this.#isSaved = true;
  }

  /** @param {Entity} mine */
  async #change(mine) {
    const base = /** @type {Entity} */ (this.entity);
    try {
      if (this.#wayOfSaving.value === "replace") return await this.service.replace(this.table, mine);
      const changed = [...mine.properties].filter(([name, value]) => !isSame(value, base.properties.get(name)));
      if (changed.length) await this.service.merge(this.table, { ...mine, properties: new Map(changed) });
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (error.code === "ResourceNotFound")
        throw new InputError("This entity has been deleted meanwhile. To bring it back, clone it.");
      if (error.code !== "UpdateConditionNotSatisfied") throw error;
      await resolveConflict(this.service, this.table, base, mine);
    }
  }
}
