import { UnreadableValues } from '../problem-list.ts';

/** One record with the line on which it begins. */
export interface CsvRecord {
  line: number;
  fields: string[];
}

/** No value needs more: a quote that never ends must not gather the whole file. */
const MAX_RECORD_LENGTH = 64 * 1024;

/**
 * Reads CSV (RFC 4180) as it comes, in pieces cut anywhere: quotes, doubled quotes, line feeds within quotes, `\n` and `\r\n`.
 * The separator is what the first line uses: comma, semicolon or tab. Empty lines are left out.
 * Throws `UnreadableValues` with the line's number.
 */
export async function* readCsv(input: AsyncIterable<Uint8Array>): AsyncGenerator<CsvRecord> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = new CsvReader();
  try {
    for await (const piece of input) yield* reader.take(decoder.decode(piece, { stream: true }));
    yield* reader.take(decoder.decode());
  } catch (error) {
    if (error instanceof TypeError) throw new UnreadableValues(`line ${reader.line}: the file is not UTF-8`);
    throw error;
  }
  yield* reader.end();
}

class CsvReader {
  /** Where the reader stands, from 1. */
  line = 1;
  /** What is left of the last piece: an unfinished record. */
  #rest = '';
  #separator: string | undefined;

  /** The records that are whole now. */
  *take(piece: string): Generator<CsvRecord> {
    let text = this.#rest + piece;
    for (;;) {
      const end = endOfRecord(text);
      if (end < 0) break;
      if (end > MAX_RECORD_LENGTH) throw this.#tooLong();
      const record = this.#record(text.slice(0, end));
      if (record) yield record;
      text = text.slice(end + 1);
    }
    if (text.length > MAX_RECORD_LENGTH) throw this.#tooLong();
    this.#rest = text;
  }

  *end(): Generator<CsvRecord> {
    const record = this.#record(this.#rest);
    if (record) yield record;
  }

  #tooLong(): UnreadableValues {
    return new UnreadableValues(`line ${this.line}: the record has no end`, 'Close the quotes.');
  }

  #record(raw: string): CsvRecord | undefined {
    const { line } = this;
    this.line += raw.split('\n').length;
    const text = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
    if (text.trim() === '') return undefined;
    this.#separator ??= separatorOf(text);
    return { line, fields: splitRecord(text, this.#separator, line) };
  }
}

/** The line feed that ends the first record; -1 where it is not there yet. */
function endOfRecord(text: string): number {
  let feed = text.indexOf('\n');
  // Line feeds between an odd quote and the next belong to a field. Only the record itself is looked through.
  for (let from = 0; feed >= 0; ) {
    const quote = text.slice(from, feed).indexOf('"');
    if (quote < 0) return feed;
    const close = text.indexOf('"', from + quote + 1);
    if (close < 0) return -1;
    if (feed < close) feed = text.indexOf('\n', close);
    from = close + 1;
  }
  return -1;
}

/** The separator that a header uses. */
export function separatorOf(header: string): string {
  const count = (separator: string) => header.split(separator).length;
  return [',', ';', '\t'].reduce((best, each) => (count(each) > count(best) ? each : best));
}

/** The fields of a record. Throws `UnreadableValues` where its quotes are wrong. */
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
      if (close < 0) throw new UnreadableValues(`line ${line}: a quote has no end`);
      field += text.slice(at + 1, close);
      at = close + 1;
      if (text[at] !== '"') break;
      field += '"';
    }
    fields.push(field);
    if (at >= text.length) return fields;
    if (text[at] !== separator) throw new UnreadableValues(`line ${line}: something stands behind a quote`);
  }
}
