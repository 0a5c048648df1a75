// Texts as they are shown: with signs for characters that have none, and cut where they are long.

/** The longest text that is shown whole; what is copied always is. */
const MAX_SHOWN = 240;

/** A text with signs for the characters that have none. @param {string} text */
export function visible(text) {
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return shown.replace(/[\u0000-\u001f\u007f]/g, (char) =>
    char === "\u007f" ? "␡" : String.fromCharCode(0x2400 + char.charCodeAt(0)),
  );
}
