/**
 * Splits CSV (RFC 4180) into records and fields, for CSV folders and for `buffer import`. A quote is special only at
 * the start of a field; elsewhere it is an ordinary character (a 5" pipe). Two quotes within a quoted field represent
 * one quote. Quoted fields may contain separators and line endings. A line ends with LF, CR LF or CR.
 *
 * A record that cannot be split, is too long, is not valid in the encoding or contains NUL bytes has a problem and no
 * fields. The next record begins after its first line. NUL bytes and byte order marks before a record are skipped. NUL
 * bytes at the end of a file are ignored, because a writer that allocates files in advance replaces them.
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
  /** Field separator. Default: the separator used in the first record. */
  separator?: string | undefined;
}

interface CsvReaderOptions extends Partial<CsvPosition> {
  /** Number of lines before the first record. */
  skipLines?: number;
  /** utf-8, windows-1252, utf-16le or utf-16be. Default: utf-8. */
  encoding?: string;
  /**
   * Whether a last line without a line ending is read. If not, the record has a problem, and the position remains at
   * its beginning. Default: true.
   */
  isLastLineRead?: boolean;
  /** Bytes before the position, up to `BYTES_BEFORE`. */
  before?: Uint8Array;
}

/** Maximum length of a record in characters, so that an unclosed quote does not buffer the whole file. */
const MAX_RECORD = 64 * 1024;
export const BYTES_BEFORE = 256;
const FEED = 10;
const RETURN = 13;
/** Byte order mark, as one character and as three bytes. */
const [MARK, MARK_BYTES] = ['\ufeff', '\u00ef\u00bb\u00bf'] as const;
const LINE_END = /\r\n?|\n/;
const UNFINISHED = 'has no line ending and may be incomplete; if files always end this way, set last_line: take';
/** The cells on both sides of NUL bytes can be incomplete, because a power cut can replace any part of a file with them. */
const CONTAINS_NULS = 'contains null characters and may be incomplete';
/** Characters that are not decoded yet, and NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: NUL bytes occur in files after a power cut.
const UNDECODED = /[^\u0001-\u007f]/;

export class CsvReader implements CsvPosition {
  position: number;
  line: number;
  isInside: boolean;
  separator: string | undefined;
  before: Uint8Array;
  readonly #options: CsvReaderOptions;
  /** Number of bytes per character before decoding. */
  readonly #width: 1 | 2;
  readonly #decoder: InstanceType<typeof TextDecoder>;
  /** Bytes after the position. */
  #rest: Uint8Array = new Uint8Array();

  constructor(options: CsvReaderOptions = {}) {
    const { position = 0, line = 1, isInside = false, separator, before = new Uint8Array() } = options;
    this.position = position;
    this.line = line;
    this.isInside = isInside;
    this.separator = separator;
    this.before = before;
    this.#options = options;
    this.#decoder = new TextDecoder(options.encoding, { fatal: true });
    this.#width = this.#decoder.encoding.startsWith('utf-16') ? 2 : 1;
  }

  /**
   * Yields the records that end in each chunk, without empty lines. `position`, `line` and `before` are those after the
   * yielded records. With `isComplete`, also yields the text after the final line ending.
   */
  async *batches(chunks: AsyncIterable<Uint8Array>, isComplete = true): AsyncGenerator<CsvRecord[]> {
    let nuls = 0;
    for await (const chunk of chunks) {
      const length = this.#lengthWithoutNuls(chunk);
      for (; length > 0 && nuls > 0; nuls -= Math.min(nuls, MAX_RECORD)) {
        yield this.#read(new Uint8Array(Math.min(nuls, MAX_RECORD)));
      }
      nuls += chunk.length - length;
      if (length > 0) yield this.#read(chunk.subarray(0, length));
    }
    if (isComplete) yield this.#read();
  }

  /** Returns the length of a chunk without the NUL bytes at its end, in whole characters. */
  #lengthWithoutNuls(chunk: Uint8Array): number {
    const length = chunk.findLastIndex((byte) => byte !== 0) + 1;
    // In UTF-16, the second byte of a character can be 0.
    const isInCharacter = (this.position + this.#rest.length + length) % this.#width;
    return Math.min(chunk.length, length + isInCharacter);
  }

  #read(chunk?: Uint8Array): CsvRecord[] {
    const { skipLines = 0, isLastLineRead = true } = this.#options;
    const isEnd = chunk === undefined;
    const bytes = chunk === undefined ? Buffer.from(this.#rest) : Buffer.concat([this.#rest, chunk]);
    const text = this.#textOf(bytes);
    const { length } = text;
    const records: CsvRecord[] = [];
    let at = 0;
    /** Index after the latest consumed line. */
    let consumed = 0;
    while (at < length) {
      if (text[at] === '\0') {
        consumed = ++at;
        continue;
      }
      const { line, isInside } = this;
      if (!isInside) at += markLengthAt(text, at);
      const lineEnd = lineEndOf(text, at);
      const isLong = lineEnd - at > MAX_RECORD;
      // A carriage return at the end may be followed by a line feed in the next chunk.
      const isOpen = lineEnd >= length - 1 && text[lineEnd] !== '\n';
      if (isOpen && !isEnd && !isLong && (!isInside || text[lineEnd] === '\r')) break;
      const firstLine = text.slice(at, lineEnd);
      const isSkipped = isInside || line <= skipLines || firstLine.trim() === '';
      let record: Split = { fields: [], end: lineEnd };
      if (isLong) record.problem = firstLine.includes('\0') ? CONTAINS_NULS : 'longer than 64 KiB';
      else if (!isSkipped) {
        this.separator ??= separatorOf(firstLine);
        if (firstLine.includes('"')) record = splitQuoted(text, at, this.separator, lineEnd);
        else record.fields = firstLine.split(this.separator);
        const isUnfinished = record.end >= length - 1 && text[record.end] !== '\n';
        if (isUnfinished && !isEnd && length - at <= MAX_RECORD) break;
        if (record.end - at > MAX_RECORD) record = { fields: [], end: lineEnd, problem: 'unterminated quote' };
      }
      const { end } = record;
      if (end >= length && isEnd && !isSkipped && !isLastLineRead && record.problem === undefined) {
        records.push({ line, fields: [], problem: UNFINISHED });
        break;
      }
      if (UNDECODED.test(text.slice(at, end)) && record.problem === undefined) this.#decodeFields(record);
      this.isInside = end === length && !isEnd;
      if (!this.isInside) this.line += end === lineEnd ? 1 : text.slice(at, end).split(LINE_END).length;
      at = text[end] === '\r' && text[end + 1] === '\n' ? end + 2 : Math.min(end + 1, length);
      consumed = at;
      if (!isSkipped) records.push({ line, fields: record.fields, problem: record.problem });
    }
    const used = bytes.subarray(0, consumed * this.#width);
    this.position += used.length;
    this.before = Buffer.concat([this.before, used.subarray(-BYTES_BEFORE)]).subarray(-BYTES_BEFORE);
    this.#rest = bytes.subarray(used.length);
    return records;
  }

  /** Returns one character per byte, or per two bytes, so that the position can be computed. */
  #textOf(bytes: Buffer): string {
    if (this.#width === 1) return bytes.toString('latin1');
    const units = bytes.subarray(0, bytes.length - (bytes.length % 2));
    return (this.#decoder.encoding === 'utf-16be' ? Buffer.from(units).swap16() : units).toString('utf16le');
  }

  #decodeFields(record: Split): void {
    const { fields } = record;
    const hasNuls = fields.some((field) => field.includes('\0'));
    record.fields = [];
    try {
      const isDecoded = this.#width === 2;
      const texts = isDecoded ? fields : fields.map((text) => this.#decoder.decode(Buffer.from(text, 'latin1')));
      if (hasNuls) record.problem = CONTAINS_NULS;
      else if (texts.every((text) => text.isWellFormed())) record.fields = texts;
      else record.problem = `not valid ${this.#decoder.encoding}`;
    } catch {
      // The decoder reports invalid bytes with an error.
      const instead = hasNuls ? 'utf-16le' : 'windows-1252';
      record.problem = `not valid ${this.#decoder.encoding}`;
      if (this.#options.encoding !== undefined) record.problem += `; set encoding, for example ${instead}`;
    }
  }
}

/** Yields the records of a stream. Throws `UnreadableValues` for invalid records. */
export async function* readCsv(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<CsvRecord> {
  for await (const records of new CsvReader().batches(chunks)) {
    for (const record of records) yield assertValid(record);
  }
}

export function assertValid(record: CsvRecord): CsvRecord {
  const { line, problem } = record;
  if (problem !== undefined) throw new UnreadableValues(`line ${line}: ${problem}`);
  return record;
}

interface Split {
  fields: string[];
  /** Index of the line ending after the record, or the length of the text. Infinite if a quote is not closed. */
  end: number;
  problem?: string;
}

/** Splits the record at `start`. A record with text after a quote ends at the end of its first line. */
function splitQuoted(text: string, start: number, separator: string, firstLineEnd: number): Split {
  const fields: string[] = [];
  let lineEnd = firstLineEnd;
  for (let at = start; ; at++) {
    if (at > lineEnd) lineEnd = lineEndOf(text, at);
    if (text[at] !== '"') {
      const found = text.indexOf(separator, at);
      const end = found < 0 || found > lineEnd ? lineEnd : found;
      fields.push(text.slice(at, end));
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
    const end = lineEndOf(text, at);
    if (end === at) return { fields, end };
    // The quote probably belongs to another line, and the lines before that line can be read.
    return { fields: [], end: firstLineEnd, problem: 'unexpected text after a closing quote' };
  }
}

/** Returns the separator used in a line: comma, semicolon or tab. */
function separatorOf(line: string): string {
  const plain = line.replaceAll(/"[^"]*(?:"|$)/g, '');
  const count = (separator: string) => plain.split(separator).length;
  return [',', ';', '\t'].reduce((best, each) => (count(each) > count(best) ? each : best));
}

function markLengthAt(text: string, at: number): number {
  if (text.startsWith(MARK, at)) return MARK.length;
  return text.startsWith(MARK_BYTES, at) ? MARK_BYTES.length : 0;
}

/** Returns the index of the first line feed or carriage return at or after `from`, or the length of the text. */
function lineEndOf(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === FEED || code === RETURN) return at;
  }
  return text.length;
}
