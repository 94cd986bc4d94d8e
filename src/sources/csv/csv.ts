/** Parses CSV (RFC 4180) from a stream of bytes or from a position in a file. */
import { UnreadableValues } from '../intake/problem-list.ts';

/** A record that has not been split into fields yet. */
export interface RawRecord {
  text: string;
  /** Line on which the record begins, from 1. */
  line: number;
  /** Byte offsets of the start and end of the record. */
  startsAt: number;
  endsAt: number;
}

export interface Place {
  position: number;
  /** Line number of the record at this position. */
  line: number;
}

export interface CsvRecord {
  line: number;
  fields: string[];
}

interface RawOptions {
  /** Position of the first byte to read. Default: the beginning of the file. */
  from?: Place;
  /** Label of `TextDecoder`. Default: utf-8. */
  encoding?: string;
  /** Whether the text after the final line feed is a record. Default: true. */
  isComplete?: boolean;
}

/** Maximum record size, so that an unclosed quote does not buffer the whole file. */
const MAX_RECORD_BYTES = 64 * 1024;
const LINE_FEED = 10;
const QUOTE = 34;
/** Line feed, comma, semicolon, tab, vertical bar. */
const FIELD_STARTS_AFTER = new Set([LINE_FEED, 44, 59, 9, 124]);

/**
 * Yields records, each with the position from which reading can resume. Quoted fields may contain line feeds. Throws
 * `UnreadableValues` for bytes that are invalid in the encoding, and for records longer than 64 KiB.
 */
export async function* rawRecords(
  chunks: AsyncIterable<Uint8Array>,
  { from = { position: 0, line: 1 }, encoding = 'utf-8', isComplete = true }: RawOptions = {},
): AsyncGenerator<RawRecord> {
  const width = encoding.startsWith('utf-16') ? 2 : 1;
  const low = encoding === 'utf-16be' ? 1 : 0;
  const decoder = new TextDecoder(encoding, { fatal: true });
  let { position, line } = from;
  let rest = Buffer.alloc(0);
  const decode = (bytes: Buffer): string => {
    try {
      return decoder.decode(bytes).replace(/\r?\n$/, '');
    } catch {
      throw new UnreadableValues(`line ${line}: the file is not ${encoding}`);
    }
  };
  const checkLength = (length: number) => {
    if (length > MAX_RECORD_BYTES) throw new UnreadableValues(`line ${line}: unterminated record`, 'Close the quotes.');
  };
  for await (const chunk of chunks) {
    const bytes = Buffer.concat([rest, chunk]);
    let start = 0;
    let lines = 0;
    let isQuoted = false;
    let previous = LINE_FEED;
    for (let at = 0; at + width <= bytes.length; at += width) {
      const code = width === 1 ? bytes[at]! : bytes[at + low]! | (bytes[at + 1 - low]! << 8);
      // A quote within an unquoted field is an ordinary character (a 5" pipe). Two quotes within a quoted field
      // represent one quote.
      if (code === QUOTE) isQuoted = !isQuoted && (previous === QUOTE || FIELD_STARTS_AFTER.has(previous));
      previous = code;
      if (code !== LINE_FEED) continue;
      lines++;
      if (isQuoted) continue;
      const end = at + width;
      checkLength(end - start);
      yield { text: decode(bytes.subarray(start, end)), line, startsAt: position + start, endsAt: position + end };
      line += lines;
      lines = 0;
      start = end;
    }
    position += start;
    rest = bytes.subarray(start);
    checkLength(rest.length);
  }
  if (isComplete && rest.length > 0) {
    yield { text: decode(rest).replace(/\r$/, ''), line, startsAt: position, endsAt: position + rest.length };
  }
}

/** Yields the fields of each record. Detects the separator from the first record and skips empty lines. */
export async function* readCsv(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<CsvRecord> {
  let separator: string | undefined;
  for await (const { text, line } of rawRecords(chunks)) {
    if (text.trim() === '') continue;
    separator ??= separatorOf(text);
    yield { line, fields: splitRecord(text, separator, line) };
  }
}

/** Returns the separator used in a header: comma, semicolon or tab. */
export function separatorOf(header: string): string {
  const count = (separator: string) => header.split(separator).length;
  return [',', ';', '\t'].reduce((best, each) => (count(each) > count(best) ? each : best));
}

/** Splits a record into fields. Throws `UnreadableValues` for invalid quotes. */
export function splitRecord(text: string, separator: string, line: number): string[] {
  if (!text.includes('"')) return text.split(separator);
  const fields: string[] = [];
  for (let at = 0; ; at++) {
    if (text[at] !== '"') {
      const end = text.indexOf(separator, at);
      fields.push(end < 0 ? text.slice(at) : text.slice(at, end));
      if (end < 0) return fields;
      at = end;
      continue;
    }
    let field = '';
    for (;;) {
      const close = text.indexOf('"', at + 1);
      if (close < 0) throw new UnreadableValues(`line ${line}: unterminated quote`);
      field += text.slice(at + 1, close);
      at = close + 1;
      if (text[at] !== '"') break;
      field += '"';
    }
    fields.push(field);
    if (at >= text.length) return fields;
    if (text[at] !== separator) throw new UnreadableValues(`line ${line}: unexpected text after a quote`);
  }
}
