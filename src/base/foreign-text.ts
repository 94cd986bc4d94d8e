/**
 * Sanitizes external text (events, platform messages, tag names) for the terminal. Control characters could change the
 * terminal state, and bidirectional or invisible characters could disguise text, so each is replaced by its escape
 * sequence.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters must not reach a terminal
const INVISIBLE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\ufff9-\ufffb]|\p{Cf}/gu;

/**
 * Replaces each invisible character except line feeds with an escape sequence such as `\u202e`. JSON text remains
 * equivalent.
 */
export function visible(text: string): string {
  return text.replaceAll(INVISIBLE, (character) =>
    [...Array(character.length).keys()]
      .map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** Returns the text on one line with white space collapsed. */
export function plain(text: string): string {
  return visible(text.replaceAll(/(?!\ufeff)\s+/gu, ' ').trim());
}

/** Formats a value as JSON for a terminal or a program, as printed by `--json`. An `indent` of 0 means one line. */
export function jsonText(value: unknown, indent = 2): string {
  return visible(JSON.stringify(value, null, indent));
}
