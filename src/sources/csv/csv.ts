/**
 * Splits CSV (RFC 4180) into records and fields, for CSV folders and for `buffer import`. A quote is special only at the
 * start of a field; elsewhere it is an ordinary character (a 5" pipe). Two quotes within a quoted field represent one
 * quote. Quoted fields may contain separators and line feeds.
 */
import { UnreadableValues } from '../intake/problem-list.ts';

export interface CsvRecord {
  /** Line on which the record begins, from 1. */
  line: number;
  fields: string[];
  /** Set if the quotes of the record are invalid. */
  problem?: string;
}

export interface CsvReaderOptions {
  /** Byte offset and line of the first record to read. Default: the beginning of the file. */
  position?: number;
  line?: number;
  /** Number of lines before the first record. */
  skipLines?: number;
  /** Default: the separator used in the first record. */
  separator?: string | undefined;
  /** Label of `TextDecoder`. Default: utf-8. */
  encoding?: string;
}

/** Maximum length of a record in characters, so that an unclosed quote does not buffer the whole file. */
const MAX_RECORD = 64 * 1024;
const BYTE_ORDER_MARK = '\ufeff';

export class CsvReader {
  /** Byte offset after the records that `read` has returned, from which reading can resume. */
  position: number;
  /** Line number of the next record. */
  line: number;
  separator: string | undefined;
  readonly #skipLines: number;
  readonly #encoding: string;
  readonly #decoder: InstanceType<typeof TextDecoder>;
  /** Beginning of a record whose end has not been read yet. */
  #rest = '';

  constructor({ position = 0, line = 1, skipLines = 0, separator, encoding = 'utf-8' }: CsvReaderOptions = {}) {
    this.position = position;
    this.line = line;
    this.separator = separator;
    this.#skipLines = skipLines;
    this.#encoding = encoding;
    this.#decoder = new TextDecoder(encoding, { fatal: true, ignoreBOM: true });
  }

  /**
   * Yields the records that end in this chunk, without empty lines. Without a chunk, yields the text after the final line
   * feed as a record. Throws `UnreadableValues` for bytes that are invalid in the encoding, and for records that are too
   * long.
   */
  *read(chunk?: Uint8Array): Generator<CsvRecord> {
    const isEnd = chunk === undefined;
    const text = this.#rest + this.#decode(chunk);
    let start = this.position === 0 && text.startsWith(BYTE_ORDER_MARK) ? 1 : 0;
    let consumed = 0;
    while (start < text.length) {
      const { line } = this;
      const lineEnd = indexOrEnd(text, '\n', start);
      if (lineEnd === text.length && !isEnd) break;
      const firstLine = withoutReturn(text.slice(start, lineEnd));
      const isSkipped = line <= this.#skipLines || firstLine.trim() === '';
      let record: Split = { end: lineEnd };
      if (!isSkipped) {
        this.separator ??= separatorOf(firstLine);
        if (firstLine.includes('"')) record = splitQuoted(text, start, this.separator);
        else record.fields = firstLine.split(this.separator);
      }
      const { fields = [], end, problem } = record;
      if (end === text.length && !isEnd) break;
      this.#checkLength(end - start);
      this.line += end === lineEnd ? 1 : text.slice(start, end).split('\n').length;
      consumed = Math.min(end + 1, text.length);
      start = consumed;
      if (!isSkipped) yield problem === undefined ? { line, fields } : { line, fields, problem };
    }
    this.#checkLength(text.length - start);
    this.#rest = text.slice(consumed);
    this.position += this.#bytesOf(text.slice(0, consumed));
  }

  #checkLength(length: number): void {
    if (length > MAX_RECORD) {
      throw new UnreadableValues(`line ${this.line}: unterminated record`, 'Close the quotes.');
    }
  }

  #decode(chunk: Uint8Array | undefined): string {
    try {
      return this.#decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      const lenient = new TextDecoder(this.#encoding).decode(chunk);
      const valid = this.#rest + lenient.slice(0, Math.max(0, lenient.indexOf('\ufffd')));
      throw new UnreadableValues(`line ${this.line + valid.split('\n').length - 1}: the file is not ${this.#encoding}`);
    }
  }

  #bytesOf(text: string): number {
    if (this.#encoding === 'utf-8') return Buffer.byteLength(text);
    return this.#encoding.startsWith('utf-16') ? text.length * 2 : text.length;
  }
}

/** Yields all records. */
export async function* recordsOf(chunks: AsyncIterable<Uint8Array>, reader: CsvReader): AsyncGenerator<CsvRecord> {
  for await (const chunk of chunks) yield* reader.read(chunk);
  yield* reader.read();
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
  fields?: string[];
  /** Index of the line feed after the record, or the length of the text. */
  end: number;
  problem?: string;
}

/** Splits the record at `start`. A record with invalid quotes ends at the next line feed. */
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
      if (close < 0) return { end: text.length, problem: 'unterminated quote' };
      field += text.slice(at + 1, close);
      at = close + 1;
      if (text[at] !== '"') break;
      field += '"';
    }
    fields.push(field);
    if (text[at] === separator) continue;
    const end = indexOrEnd(text, '\n', at);
    if (withoutReturn(text.slice(at, end)) === '') return { fields, end };
    return { end, problem: 'unexpected text after a quote' };
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
