/**
 * Stage between a socket and the NATS parser, because the parser collects whole messages in memory. A message within
 * the size limits passes unchanged. A larger one is replaced by an empty message with the same subject and reply
 * subject and the header `Tagferry-Discarded`, so that the consumer can end its redelivery. Its bytes are dropped as
 * they arrive.
 *
 * Protocol: `MSG subject sid [reply] bytes`, `HMSG subject sid [reply] header-bytes bytes`, each followed by the
 * bytes and CR LF. Stores at most one incomplete line.
 */
import { BrokerError } from '../broker-error.ts';
import { type ExceededBound, exceededBound, MAX_TOPIC_BYTES } from '../discards.ts';
import { GrowingBuffer } from '../growing-buffer.ts';

/** Header value: the exceeded limit and the size of the message. */
export const DISCARDED_HEADER = 'Tagferry-Discarded';

/** Limit for a protocol line. The longest are INFO lines of large clusters. */
export const MAX_LINE_BYTES = 64 * 1024;
const END = '\r\n';
const LF = 10;

interface Line {
  /** Number of bytes that follow the line and belong to it. */
  bodyBytes: number;
  /** Data that replaces the line and its bytes. */
  replacement?: Buffer;
}

export class NatsFraming {
  /** An incomplete line. */
  readonly #line = new GrowingBuffer();
  /** Number of message bytes that have not arrived yet, including CR LF. */
  #left = 0;
  #isDiscarding = false;

  /** Returns the bytes for the parser. Throws a `BrokerError` if the bytes are not valid NATS data. */
  push(chunk: Uint8Array): Buffer[] {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    const accepted: Buffer[] = [];
    let acceptedFrom = 0;
    let at = 0;
    const passOn = () => {
      if (at > acceptedFrom) accepted.push(bytes.subarray(acceptedFrom, at));
      acceptedFrom = at;
    };
    while (at < bytes.length) {
      if (this.#left === 0) {
        const lineEnd = bytes.indexOf(LF, at);
        const end = lineEnd < 0 ? bytes.length : lineEnd + 1;
        const isContinued = this.#line.length > 0;
        const content = (lineEnd < 0 ? bytes.length : lineEnd) - at;
        if (this.#line.length + content > MAX_LINE_BYTES) throw malformed('a line is too long');
        if (isContinued || lineEnd < 0) {
          passOn();
          this.#line.add(bytes.subarray(at, end));
          acceptedFrom = at = end;
          if (lineEnd < 0) break;
        }
        const line = isContinued ? this.#line.drain() : bytes.subarray(at, end);
        const { bodyBytes, replacement } = readLine(line.toString('latin1'));
        this.#isDiscarding = replacement !== undefined;
        if (replacement) passOn();
        if (replacement || isContinued) accepted.push(replacement ?? line);
        at = end;
        if (replacement) acceptedFrom = at;
        this.#left = bodyBytes;
        continue;
      }
      const arrived = Math.min(this.#left, bytes.length - at);
      this.#checkEnd(bytes, at, arrived);
      this.#left -= arrived;
      at += arrived;
      if (this.#isDiscarding) acceptedFrom = at;
    }
    passOn();
    return accepted;
  }

  /** Checks that a message ends where the parser expects it to end. */
  #checkEnd(bytes: Buffer, at: number, arrived: number): void {
    for (const [left, expected] of [
      [2, 13],
      [1, 10],
    ] as const) {
      const index = at + this.#left - left;
      if (this.#left >= left && index < at + arrived && bytes[index] !== expected) {
        throw malformed('a message does not have the length in its line');
      }
    }
  }
}

function readLine(line: string): Line {
  if (!/^[^\r\n]*\r\n$/.test(line)) throw malformed('a line does not end with CR LF');
  const [verb = '', ...words] = line.trim().split(/[ \t]+/);
  const isMessage = /^h?msg$/i.test(verb);
  if (!isMessage) return { bodyBytes: 0 };
  const hasHeaders = verb.length === 4;
  const [subject = '', sid = '', ...rest] = words;
  const bytes = countOf(rest.pop());
  const headers = hasHeaders ? countOf(rest.pop()) : 0;
  const [reply = '', ...surplus] = rest;
  if (!/^\d{1,15}$/.test(sid) || surplus.length > 0 || headers > bytes || reply.length > MAX_TOPIC_BYTES) {
    throw malformed('a message has an invalid line');
  }
  const bodyBytes = bytes + END.length;
  const bound = exceededBound({ packet: bytes, topic: subject.length, headers });
  if (bound === undefined) return { bodyBytes };
  return { bodyBytes, replacement: replacementOf([subject.slice(0, MAX_TOPIC_BYTES), sid, reply], bound, bytes) };
}

function replacementOf(words: readonly string[], bound: ExceededBound, bytes: number): Buffer {
  const headers = `NATS/1.0${END}${DISCARDED_HEADER}: ${bound} ${bytes}${END}${END}`;
  const line = ['HMSG', ...words.filter((word) => word !== ''), headers.length, headers.length].join(' ');
  return Buffer.from(`${line}${END}${headers}${END}`, 'latin1');
}

/** Parses the header; returns `undefined` if there is none. */
export function readDiscarded(header: string | undefined): { bound: ExceededBound; bytes: number } | undefined {
  const [, bound, bytes] = /^(packet|topic|headers) (\d+)$/.exec(header ?? '') ?? [];
  return bound === undefined ? undefined : { bound: bound as ExceededBound, bytes: Number(bytes) };
}

function countOf(word: string | undefined): number {
  if (word === undefined || !/^\d{1,15}$/.test(word)) throw malformed('a message has no length');
  return Number(word);
}

function malformed(what: string): BrokerError {
  return new BrokerError(`the NATS server sent a malformed packet: ${what}`, {
    code: 'broker.malformed',
    retryable: true,
  });
}
