/**
 * Text from outside (events, the platform's words, names of other people's tags) on a terminal. Control characters could steer
 * it, bidirectional marks and other invisible ones make text read as what it is not: each is shown as its escape.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: what must not reach a terminal
const INVISIBLE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\ufff9-\ufffb]|\p{Cf}/gu;

/** Every invisible character but the line feed as `\u202e`. In JSON text it stays JSON, of the same value. */
export function visible(text: string): string {
  return text.replaceAll(INVISIBLE, (character) =>
    [...Array(character.length).keys()]
      .map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** On one line: white space is one space. */
export function plain(text: string): string {
  return visible(text.replaceAll(/(?!\ufeff)\s+/gu, ' ').trim());
}

/** A value as JSON for a terminal or a program: what `--json` prints. On one line with an `indent` of 0. */
export function jsonText(value: unknown, indent = 2): string {
  return visible(JSON.stringify(value, null, indent));
}
