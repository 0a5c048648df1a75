// JSON without loss: numbers keep their text, and objects are Maps, whose order and names are those of the text.

/** A number as it was written. */
export class JsonNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const BLANK = /[ \t\r\n]*/y;
// Up to the end of a string, or to the first escape in it.
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const MAX_DEPTH = 64;

/** @param {string} text @returns {JsonValue} @throws {SyntaxError} */
export function parseJson(text) {
  const parser = new Parser(text);
  const value = parser.value(0);
  parser.blank();
  if (parser.at !== text.length) throw parser.wrong();
  return value;
}

class Parser {
  at = 0;

  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  wrong() {
    return new SyntaxError(`This is not JSON: see character ${this.at + 1}.`);
  }

  blank() {
    this.match(BLANK);
  }

  /** @param {RegExp} pattern a sticky one @returns {string | null} */
  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return null;
    this.at += found[0].length;
    return found[0];
  }

  /** @param {string} word @returns {boolean} whether it is next, and was read */
  take(word) {
    this.blank();
    if (!this.text.startsWith(word, this.at)) return false;
    this.at += word.length;
    return true;
  }

  /** @param {string} word */
  expect(word) {
    if (!this.take(word)) throw this.wrong();
  }

  /** @param {number} depth @returns {JsonValue} */
  value(depth) {
    if (depth > MAX_DEPTH) throw this.wrong();
    this.blank();
    switch (this.text[this.at]) {
      case '"':
        return this.string();
      case "{":
        return this.object(depth + 1);
      case "[":
        return this.array(depth + 1);
      case "t":
        return (this.expect("true"), true);
      case "f":
        return (this.expect("false"), false);
      case "n":
        return (this.expect("null"), null);
    }
    const number = this.match(NUMBER);
    if (number === null) throw this.wrong();
    return new JsonNumber(number);
  }

  string() {
    const start = this.at;
    this.expect('"');
    const plain = this.match(PLAIN) ?? "";
    if (this.text[this.at] === '"') return ((this.at += 1), plain);
    while (this.text[this.at] === "\\") {
      this.at += 2;
      this.match(PLAIN);
    }
    this.expect('"');
    return /** @type {string} */ (JSON.parse(this.text.slice(start, this.at)));
  }

  /** @param {number} depth */
  object(depth) {
    const members = new Map();
    this.expect("{");
    if (this.take("}")) return members;
    do {
      this.blank();
      const name = this.string();
      this.expect(":");
      if (members.has(name)) throw new SyntaxError(`"${name}" is there twice.`);
      members.set(name, this.value(depth));
    } while (this.take(","));
    this.expect("}");
    return members;
  }

  /** @param {number} depth */
  array(depth) {
    /** @type {JsonValue[]} */
    const items = [];
    this.expect("[");
    if (this.take("]")) return items;
    do items.push(this.value(depth));
    while (this.take(","));
    this.expect("]");
    return items;
  }
}
