/**
 * The stage between a socket and the NATS parser, which collects every message whole. A message within the bounds passes unchanged. In place
 * of any other one passes an empty message of the same subject and reply subject with the header `Tagferry-Discarded`, so that the consumer
 * can end its redelivery; its bytes are dropped as they arrive.
 *
 * Protocol: `MSG subject sid [reply] bytes`, `HMSG subject sid [reply] header-bytes bytes`, each followed by the bytes and CR LF.
 * Holds at most one incomplete line.
 */
import { BrokerError } from '../broker-error.ts';
import { type ExceededBound, exceededBound, MAX_TOPIC_BYTES } from '../discards.ts';
import { GrowingBuffer } from '../growing-buffer.ts';

/** Value: the bound that the message exceeds, and its bytes. */
export const DISCARDED_HEADER = 'Tagferry-Discarded';

/** Of a protocol line; the longest are INFO of large clusters. */
export const MAX_LINE_BYTES = 64 * 1024;
const END = '\r\n';
const LF = 10;

interface Line {
  /** Bytes after the line that belong to it. */
  bodyBytes: number;
  /** What passes instead of the line and its bytes. */
  replacement?: Buffer;
}

export class NatsFraming {
  /** An incomplete line. */
  readonly #line = new GrowingBuffer();
  /** Bytes of a message that are still to come, with its CR LF. */
  #left = 0;
  #isDiscarding = false;

  /** Returns the bytes for the parser. Throws a `BrokerError` if the bytes are not NATS. */
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
        const isHeld = this.#line.length > 0;
        const content = (lineEnd < 0 ? bytes.length : lineEnd) - at;
        if (this.#line.length + content > MAX_LINE_BYTES) throw malformed('a line is too long');
        if (isHeld || lineEnd < 0) {
          passOn();
          this.#line.add(bytes.subarray(at, end));
          acceptedFrom = at = end;
          if (lineEnd < 0) break;
        }
        const line = isHeld ? this.#line.take() : bytes.subarray(at, end);
        const { bodyBytes, replacement } = readLine(line.toString('latin1'));
        this.#isDiscarding = replacement !== undefined;
        if (replacement) passOn();
        if (replacement || isHeld) accepted.push(replacement ?? line);
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

  /** The parser must find the end of a message where the framing finds it. */
  #checkEnd(bytes: Buffer, at: number, arrived: number): void {
    for (const [left, expected] of [
      [2, 13],
      [1, 10],
    ] as const) {
      const index = at + this.#left - left;
      if (this.#left >= left && index < at + arrived && bytes[index] !== expected) {
        throw malformed('a message does not end where its line says');
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

/** What the header says; `undefined` if there is none. */
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
