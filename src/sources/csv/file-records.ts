/** The records of a file from a given position, each with the position behind it, where reading can continue. */
import { UnreadableValues } from '../problem-list.ts';
import type { OpenFile } from './folder-client.ts';

export interface FileRecord {
  text: string;
  /** On which it begins, from 1. */
  line: number;
  /** Bytes of the file before it and with it. */
  startsAt: number;
  endsAt: number;
}

export interface Place {
  position: number;
  /** Of the record that begins there. */
  line: number;
}

const CHUNK_BYTES = 64 * 1024;
/** No row needs more: a quote that never ends must not gather the whole file. */
const MAX_RECORD_BYTES = 64 * 1024;
const FEED = 10;
const QUOTE = 34;
/** Line feed, comma, semicolon, tab, bar. */
const BEFORE_FIELD = new Set([FEED, 44, 59, 9, 124]);

/**
 * Gives whole records up to `end`; with `takesRest` the last one without a line feed too. Quotes hold line feeds. Throws
 * `UnreadableValues` for bytes that are not of the encoding, and for a record without an end.
 */
export async function* fileRecords(
  file: Pick<OpenFile, 'read'>,
  from: Place,
  end: number,
  encoding: string,
  takesRest: boolean,
): AsyncGenerator<FileRecord> {
  const width = encoding.startsWith('utf-16') ? 2 : 1;
  const low = encoding === 'utf-16be' ? 1 : 0;
  const decoder = new TextDecoder(encoding, { fatal: true });
  let { position, line } = from;
  let rest = Buffer.alloc(0);
  const decode = (bytes: Buffer): string => {
    try {
      return decoder.decode(bytes);
    } catch {
      throw new UnreadableValues(`line ${line}: the file is not ${encoding}`, 'Name its "encoding" in tags.yaml.');
    }
  };
  for (let read = position; read < end; ) {
    const chunk = await file.read(read, Math.min(CHUNK_BYTES, end - read));
    if (chunk.length === 0) break;
    read += chunk.length;
    const bytes = Buffer.concat([rest, chunk]);
    let start = 0;
    let feeds = 0;
    let isQuoted = false;
    let before = FEED;
    for (let at = 0; at + width <= bytes.length; at += width) {
      const code = width === 1 ? bytes[at]! : bytes[at + low]! | (bytes[at + 1 - low]! << 8);
      // A quote within a field is one of its letters (a pipe of 5" in diameter); two in a row are one within quotes.
      if (code === QUOTE) isQuoted = !isQuoted && (before === QUOTE || BEFORE_FIELD.has(before));
      before = code;
      if (code !== FEED) continue;
      feeds++;
      if (isQuoted) continue;
      const startsAt = position + start;
      const text = decode(bytes.subarray(start, at + width));
      yield { text: text.replace(/\r?\n$/, ''), line, startsAt, endsAt: position + at + width };
      line += feeds;
      feeds = 0;
      start = at + width;
    }
    position += start;
    rest = bytes.subarray(start);
    if (rest.length > MAX_RECORD_BYTES) {
      throw new UnreadableValues(`line ${line}: the record has no end`, 'Close the quotes.');
    }
  }
  if (takesRest && rest.length > 0) {
    yield { text: decode(rest).replace(/\r$/, ''), line, startsAt: position, endsAt: position + rest.length };
  }
}
