/**
 * Splits CSV (RFC 4180) into records and fields, for CSV folders and for `buffer import`. A quote is special only at the
 * start of a field; elsewhere it is an ordinary character (a 5" pipe). Two quotes within a quoted field represent one
 * quote. Quoted fields may contain separators and line feeds.
 *
 * A record that cannot be split, is too long or is not valid in the encoding has a problem and no fields. The next record
 * begins after its first line. NUL bytes, which remain in a file after a power cut, are skipped.
 */
import { UnreadableValues } from '../intake/problem-list.ts';

export interface CsvRecord {
  /** Line on which the record begins, from 1. */
  line: number;
  fields: string[];
  problem?: string | undefined;
}

export interface CsvPosition {
  /** Byte offset after the records that were read. */
  position: number;
  /** Line number of the next record. */
  line: number;
  /** Whether the position is in the middle of a line that was rejected because of its length. */
  isInside?: boolean | undefined;
}

interface CsvReaderOptions extends Partial<CsvPosition> {
  /** Number of lines before the first record. */
  skipLines?: number;
  /** Default: the separator used in the first record. */
  separator?: string | undefined;
  /** utf-8, windows-1252, utf-16le or utf-16be. Default: utf-8. */
  encoding?: string;
  /** Bytes before the position, up to `BYTES_BEFORE`. */
  before?: Uint8Array;
}

/** Maximum length of a record in characters, so that an unclosed quote does not buffer the whole file. */
const MAX_RECORD = 64 * 1024;
export const BYTES_BEFORE = 256;
const BYTE_ORDER_MARK = /^(?:\ufeff|\u00ef\u00bb\u00bf)/;
/** Characters that are not decoded yet, and NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: NUL bytes occur in files after a power cut.
const UNDECODED = /[^\u0001-\u007f]/;

export class CsvReader implements CsvPosition {
  position: number;
  line: number;
  isInside: boolean;
  separator: string | undefined;
  before: Uint8Array;
  readonly #skipLines: number;
  readonly #encoding: string;
  readonly #isWide: boolean;
  readonly #decoder: InstanceType<typeof TextDecoder>;
  /** Bytes from the position to the end of the latest chunk. */
  #rest: Uint8Array = new Uint8Array();

  constructor(options: CsvReaderOptions = {}) {
    const { position = 0, line = 1, isInside = false, separator, before = new Uint8Array() } = options;
    this.position = position;
    this.line = line;
    this.isInside = isInside;
    this.separator = separator;
    this.before = before;
    this.#skipLines = options.skipLines ?? 0;
    this.#encoding = options.encoding ?? 'utf-8';
    this.#isWide = this.#encoding.startsWith('utf-16');
    this.#decoder = new TextDecoder(this.#encoding, { fatal: true });
  }

  /**
   * Yields the records that end in this chunk, without empty lines. Without a chunk, yields the text after the final line
   * feed. `position` and `line` follow the latest yielded record.
   */
  *read(chunk?: Uint8Array): Generator<CsvRecord> {
    const isEnd = chunk === undefined;
    const bytes = Buffer.concat(chunk === undefined ? [this.#rest] : [this.#rest, chunk]);
    const text = this.#textOf(bytes);
    const { length } = text;
    const begin = this.position;
    const width = this.#isWide ? 2 : 1;
    let at = begin === 0 ? (BYTE_ORDER_MARK.exec(text)?.[0].length ?? 0) : 0;
    while (at < length) {
      if (text[at] === '\0') {
        at++;
        continue;
      }
      const { line, isInside } = this;
      const lineEnd = indexOrEnd(text, '\n', at);
      const isLong = lineEnd - at > MAX_RECORD;
      if (lineEnd === length && !isEnd && !isLong && !isInside) break;
      const firstLine = withoutReturn(text.slice(at, lineEnd));
      const isSkipped = isInside || line <= this.#skipLines || firstLine.trim() === '';
      let record: Split = { fields: [], end: lineEnd };
      if (isLong) record.problem = 'longer than 64 KiB';
      else if (!isSkipped) {
        this.separator ??= separatorOf(firstLine);
        if (firstLine.includes('"')) record = splitQuoted(text, at, this.separator);
        else record.fields = firstLine.split(this.separator);
        if (record.end >= length && !isEnd && length - at <= MAX_RECORD) break;
        if (record.end - at > MAX_RECORD) record = { fields: [], end: lineEnd, problem: 'unterminated quote' };
      }
      const { end } = record;
      if (UNDECODED.test(text.slice(at, end)) && record.problem === undefined) this.#decodeFields(record);
      this.isInside = end === length && !isEnd;
      if (!this.isInside) this.line += end === lineEnd ? 1 : text.slice(at, end).split('\n').length;
      at = Math.min(end + 1, length);
      this.position = begin + at * width;
      if (!isSkipped) yield { line, fields: record.fields, problem: record.problem };
    }
    const consumed = at * width;
    this.position = begin + consumed;
    const last = bytes.subarray(Math.max(0, consumed - BYTES_BEFORE), consumed);
    this.before = Buffer.concat([this.before, last]).subarray(-BYTES_BEFORE);
    this.#rest = bytes.subarray(consumed);
  }

  /** Returns one character per byte, or per two bytes, so that the position can be computed. */
  #textOf(bytes: Buffer): string {
    if (!this.#isWide) return bytes.toString('latin1');
    const units = bytes.subarray(0, bytes.length - (bytes.length % 2));
    return (this.#encoding === 'utf-16be' ? Buffer.from(units).swap16() : units).toString('utf16le');
  }

  #decodeFields(record: Split): void {
    const texts = record.fields.map((field) => field.replaceAll('\0', ''));
    try {
      record.fields = this.#isWide ? texts : texts.map((text) => this.#decoder.decode(Buffer.from(text, 'latin1')));
      if (record.fields.every((field) => field.isWellFormed())) return;
    } catch {
      // The decoder reports invalid bytes with an error.
    }
    record.fields = [];
    record.problem = `not valid ${this.#encoding}`;
  }
}

/** Yields the records of a file. If the file is incomplete, the text after the final line feed is not read. */
export async function* recordsOf(
  chunks: AsyncIterable<Uint8Array>,
  reader: CsvReader,
  isComplete = true,
): AsyncGenerator<CsvRecord> {
  for await (const chunk of chunks) yield* reader.read(chunk);
  if (isComplete) yield* reader.read();
}

/** Yields the records of a stream. Throws `UnreadableValues` for invalid records. */
export async function* readCsv(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<CsvRecord> {
  for await (const record of recordsOf(chunks, new CsvReader())) yield assertValid(record);
}

export function assertValid(record: CsvRecord): CsvRecord {
  const { line, problem } = record;
  if (problem !== undefined) throw new UnreadableValues(`line ${line}: ${problem}`);
  return record;
}

interface Split {
  fields: string[];
  /** Index of the line feed after the record, or the length of the text. Infinite if a quote is not closed. */
  end: number;
  problem?: string;
}

/** Splits the record at `start`. A record with text after a quote ends at the next line feed. */
function splitQuoted(text: string, start: number, separator: string): Split {
  const fields: string[] = [];
  for (let at = start; ; at++) {
    if (text[at] !== '"') {
      const lineEnd = indexOrEnd(text, '\n', at);
      const end = Math.min(indexOrEnd(text, separator, at), lineEnd);
      const field = text.slice(at, end);
      fields.push(end === lineEnd ? withoutReturn(field) : field);
      if (end === lineEnd) return { fields, end };
      at = end;
      continue;
    }
    let field = '';
    for (;;) {
      const close = text.indexOf('"', at + 1);
      if (close < 0) return { fields, end: Number.POSITIVE_INFINITY };
      field += text.slice(at + 1, close);
      at = close + 1;
      if (text[at] !== '"') break;
      field += '"';
    }
    fields.push(field);
    if (text[at] === separator) continue;
    const end = indexOrEnd(text, '\n', at);
    if (withoutReturn(text.slice(at, end)) === '') return { fields, end };
    return { fields: [], end, problem: 'unexpected text after a closing quote' };
  }
}

/** Returns the separator used in a line: comma, semicolon or tab. */
function separatorOf(line: string): string {
  const plain = line.replaceAll(/"[^"]*(?:"|$)/g, '');
  const count = (separator: string) => plain.split(separator).length;
  return [',', ';', '\t'].reduce((best, each) => (count(each) > count(best) ? each : best));
}

function indexOrEnd(text: string, part: string, from: number): number {
  const at = text.indexOf(part, from);
  return at < 0 ? text.length : at;
}

function withoutReturn(line: string): string {
  return line.endsWith('\r') ? line.slice(0, -1) : line;
}
