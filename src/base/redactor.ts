/**
 * Removes secrets from external text, because a server may echo anything that it received.
 *
 * Secrets are recognized in every likely encoding: plain, percent-encoded, form-encoded, escaped in JSON or HTML (also
 * nested), and as part of Base64 at any of three alignments. The first characters of a long secret are sufficient,
 * because the server may have truncated it. Callers must redact before they truncate.
 */

/** Replacement for a secret. */
export const REDACTED = '***';
/** Minimum length of a secret. Redacting shorter secrets would remove too much text. */
const MIN_LENGTH = 4;
/** Number of characters by which a longer secret is recognized. */
const HEAD_LENGTH = 16;
/** Maximum number of learned secrets, more than the number of a session's valid and previous tokens. */
const MAX_LEARNT = 64;
/** Maximum nesting of encodings, for example a form inside a JSON string inside HTML. */
const MAX_DEPTH = 3;

const ENCODED = /(?:%[0-9a-f]{2})+|\\u[0-9a-f]{4}|\\["\\/bfnrt]|&(?:amp|lt|gt|quot|apos|#\d{1,6}|#x[0-9a-f]{1,5});/gi;
const NAMED: Readonly<Record<string, string>> = {
  '\\b': '\b',
  '\\f': '\f',
  '\\n': '\n',
  '\\r': '\r',
  '\\t': '\t',
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&apos;': "'",
};
const BASE64 = /[A-Za-z0-9+/_=-]/;

/** Partially decoded text. `at[i]` is the position of character `i` in the original, and `at[length]` is the end. */
interface Reading {
  text: string;
  at: readonly number[] | undefined;
}

/** Patterns by which a secret is recognized. */
interface Marks {
  plain: readonly string[];
  base64: readonly string[];
}

export class Redactor {
  #configured: ReadonlyMap<string, Marks> = new Map();
  readonly #learnt = new Map<string, Marks>();

  /**
   * Sets the secrets of the current configuration. Previous secrets remain redacted, like secrets that were learned.
   */
  configure(secrets: readonly (string | undefined)[]): void {
    const before = this.#configured;
    this.#configured = new Map(secrets.filter(isLongEnough).map((secret) => [secret, marksOf(secret)]));
    this.learn(...before.keys());
  }

  /** Adds secrets that change: tokens, codes, the webhook secret. Only the most recent secrets are kept. */
  learn(...secrets: readonly (string | undefined)[]): void {
    for (const secret of secrets.filter(isLongEnough)) {
      if (this.#configured.has(secret)) continue;
      const marks = this.#learnt.get(secret) ?? marksOf(secret);
      this.#learnt.delete(secret);
      this.#learnt.set(secret, marks);
      if (this.#learnt.size > MAX_LEARNT) this.#learnt.delete(this.#learnt.keys().next().value!);
    }
  }

  /** Replaces each secret in the text with `***`. Takes linear time; callers limit the length. */
  redact(text: string): string {
    const all = [...this.#configured.values(), ...this.#learnt.values()];
    if (text === '' || all.length === 0) return text;
    const found: [number, number][] = [];
    for (const reading of readingsOf(text)) {
      const comparable = spaced(reading.text);
      for (const { plain, base64 } of all) {
        for (const mark of plain)
          find(comparable, mark, (from) => add(reading, from, endOfPlain(comparable, mark, from)));
        for (const mark of base64) {
          find(reading.text, mark, (from) => add(reading, ...runAround(reading.text, from)));
        }
      }
    }
    return found.length === 0 ? text : without(text, found);

    function add({ at }: Reading, from: number, to: number): void {
      found.push(at ? [at[from]!, at[to]!] : [from, to]);
    }
  }
}

function isLongEnough(secret: string | undefined): secret is string {
  return secret !== undefined && secret.length >= MIN_LENGTH;
}

function marksOf(secret: string): Marks {
  const texts = [
    ...new Set([secret, encodeURIComponent(secret), new URLSearchParams([['', secret]]).toString().slice(1)]),
  ];
  return {
    plain: [...new Set([...readingsOf(secret)].map(({ text }) => spaced(text)))].filter(isLongEnough),
    base64: [...new Set(texts.flatMap((text) => [0, 1, 2].flatMap((offset) => base64Of(text, offset))))],
  };
}

/** Returns the Base64 characters that depend only on the secret if it follows `offset` bytes, in both alphabets. */
function base64Of(text: string, offset: number): string[] {
  const bytes = Buffer.from(text);
  const whole = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64');
  const own = whole.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  return [own, own.replaceAll('+', '-').replaceAll('/', '_')];
}

/** Encodes spaces as `+`, as in forms. */
function spaced(text: string): string {
  return text.replaceAll('+', ' ');
}

function find(text: string, mark: string, onFound: (from: number) => void): void {
  const head = mark.slice(0, HEAD_LENGTH);
  for (let from = text.indexOf(head); from >= 0; from = text.indexOf(head, from + 1)) onFound(from);
}

/** Returns the end position of the text that matches the secret. */
function endOfPlain(text: string, mark: string, from: number): number {
  let length = Math.min(HEAD_LENGTH, mark.length);
  while (length < mark.length && text[from + length] === mark[length]) length++;
  return from + length;
}

/** Returns the surrounding Base64 characters, which contain parts of the first and last byte of the secret. */
function runAround(text: string, from: number): [number, number] {
  let start = from;
  let end = from;
  while (start > 0 && BASE64.test(text[start - 1]!)) start--;
  while (end < text.length && BASE64.test(text[end]!)) end++;
  return [start, end];
}

function* readingsOf(text: string): Generator<Reading> {
  let reading: Reading | undefined = { text, at: undefined };
  for (let depth = 0; reading && depth <= MAX_DEPTH; depth++) {
    yield reading;
    reading = decoded(reading);
  }
}

/** Removes one layer of encoding. Returns `undefined` if there is none. */
function decoded({ text, at }: Reading): Reading | undefined {
  const original = (index: number) => at?.[index] ?? index;
  const places: number[] = [];
  let written = '';
  let end = 0;
  const put = (characters: string, index: number) => {
    for (let i = 0; i < characters.length; i++) places.push(original(index));
    written += characters;
  };
  const copy = (until: number) => {
    for (let i = end; i < until; i++) places.push(original(i));
    written += text.slice(end, until);
  };
  for (const { 0: code, index } of text.matchAll(ENCODED)) {
    copy(index);
    if (code.startsWith('%')) putPercent(code, index, put);
    else put(characterOf(code), index);
    end = index + code.length;
  }
  if (end === 0) return undefined;
  copy(text.length);
  places.push(original(text.length));
  return { text: written, at: places };
}

/** Decodes UTF-8 and keeps invalid bytes as single characters. */
function putPercent(codes: string, index: number, put: (characters: string, index: number) => void): void {
  const bytes = Buffer.from(codes.replaceAll('%', ''), 'hex');
  for (let i = 0; i < bytes.length; ) {
    const lead = bytes[i]!;
    const length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const character = bytes.toString('utf8', i, i + length);
    const isWhole = !character.includes('\ufffd');
    put(isWhole ? character : String.fromCharCode(lead), index + 3 * i);
    i += isWhole ? length : 1;
  }
}

function characterOf(code: string): string {
  const named = NAMED[code.toLowerCase()];
  if (named !== undefined) return named;
  if (code.startsWith('\\u')) return String.fromCharCode(Number.parseInt(code.slice(2), 16));
  if (code.startsWith('\\')) return code.slice(1);
  const isHex = /^&#x/i.test(code);
  return String.fromCodePoint(Number.parseInt(code.slice(isHex ? 3 : 2), isHex ? 16 : 10));
}

function without(text: string, found: [number, number][]): string {
  let clean = '';
  let end = 0;
  for (const [from, to] of found.sort((a, b) => a[0] - b[0])) {
    if (from >= end) clean += text.slice(end, from) + REDACTED;
    end = Math.max(end, to);
  }
  return clean + text.slice(end);
}
