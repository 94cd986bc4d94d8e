/**
 * Transport for the NATS client that limits the size of server data before memory is allocated, because the client's
 * parser collects lines without a limit and messages of up to 64 MB.
 *
 * A message within the limits passes unchanged. A larger one is replaced by an empty message with the same subject and
 * reply subject and the header `Tagferry-Discarded`, so that the consumer can end its redelivery. Its bytes are dropped
 * as they arrive. Stores at most one incomplete line.
 */
import type { ServerInfo } from '@nats-io/transport-node';
import { NodeTransport } from '@nats-io/transport-node/lib/node_transport.js';
import { malformed } from '../broker-error.ts';
import { type ExceededBound, exceededBound, MAX_TOPIC_BYTES } from '../limits.ts';

/** Header that replaces a message over a size limit: the exceeded limit and the size of the message. */
export const DISCARDED_HEADER = 'Tagferry-Discarded';
/** Limit for a protocol line. The longest are INFO lines of large clusters. */
const MAX_LINE_BYTES = 64 * 1024;
const END = '\r\n';
const LF = 10;
const NOTHING = Buffer.alloc(0);

export class BoundedTransport extends NodeTransport {
  readonly #framing = new NatsFraming();

  /** Reads the server's first line, before TLS. */
  override peekInfo(): Promise<ServerInfo> {
    let bytes = 0;
    this.socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > MAX_LINE_BYTES) this.socket.destroy(malformed('a line is too long'));
    });
    return super.peekInfo();
  }

  override async *iterate(): AsyncIterableIterator<Uint8Array> {
    let reason: Error | undefined;
    try {
      for await (const chunk of super.iterate()) yield* this.#framing.push(chunk);
    } catch (error) {
      reason = error as Error;
    } finally {
      // The client stops reading when its parser fails. Close the connection, or unread chunks would accumulate.
      void this.close(reason);
    }
  }
}

/**
 * Protocol: `MSG subject sid [reply] bytes`, `HMSG subject sid [reply] header-bytes bytes`, each followed by a body with
 * that number of bytes and CR LF. All other lines have no body.
 */
class NatsFraming {
  #line = '';
  /** Number of body bytes that have not arrived yet. */
  #bodyLeft = 0;
  /** Whether the next line is the end of a message. */
  #isEndNext = false;
  #isDiscarding = false;

  /** Returns the bytes for the parser. Throws a `BrokerError` if the bytes are not valid NATS data. */
  push(chunk: Uint8Array): Buffer[] {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    const accepted: Buffer[] = [];
    let acceptedFrom = 0;
    for (let at = 0; at < bytes.length; ) {
      if (this.#bodyLeft > 0) {
        const arrived = Math.min(this.#bodyLeft, bytes.length - at);
        this.#bodyLeft -= arrived;
        at += arrived;
        if (this.#isDiscarding) acceptedFrom = at;
        continue;
      }
      const lineFrom = at;
      const lineEnd = bytes.indexOf(LF, at);
      at = lineEnd < 0 ? bytes.length : lineEnd + 1;
      const isContinued = this.#line !== '';
      this.#line += bytes.toString('latin1', lineFrom, at);
      if (this.#line.length > MAX_LINE_BYTES) throw malformed('a line is too long');
      const replacement = lineEnd < 0 ? undefined : this.#readLine(this.#line);
      if (lineEnd >= 0 && !isContinued && !replacement) this.#line = '';
      else {
        accepted.push(bytes.subarray(acceptedFrom, lineFrom));
        acceptedFrom = at;
        if (lineEnd < 0) break;
        accepted.push(replacement ?? Buffer.from(this.#line, 'latin1'));
        this.#line = '';
      }
    }
    accepted.push(bytes.subarray(acceptedFrom));
    return accepted.filter(({ length }) => length > 0);
  }

  /** Reads a complete line. Returns the bytes that replace it, if any. */
  #readLine(line: string): Buffer | undefined {
    if (this.#isEndNext) {
      if (line !== END) throw malformed('the length of a message differs from its header line');
      this.#isEndNext = false;
      return this.#isDiscarding ? NOTHING : undefined;
    }
    if (!/^[^\r\n]*\r\n$/.test(line)) throw malformed('a line does not end with CR LF');
    const words = line.trim().split(/[ \t]+/);
    const verb = words[0]!;
    if (!/^h?msg$/i.test(verb)) return undefined;
    const bytes = countOf(words.pop());
    const headers = verb.length === 4 ? countOf(words.pop()) : 0;
    const [, subject = '', sid = '', reply = ''] = words;
    if (!/^\d{1,15}$/.test(sid) || words.length > 4 || headers > bytes || reply.length > MAX_TOPIC_BYTES) {
      throw malformed('a message has an invalid line');
    }
    const bound = exceededBound(bytes, subject.length, headers);
    this.#bodyLeft = bytes;
    this.#isEndNext = true;
    this.#isDiscarding = bound !== undefined;
    return bound && emptyMessage([subject.slice(0, MAX_TOPIC_BYTES), sid, reply], bound, bytes);
  }
}

function emptyMessage(words: readonly string[], bound: ExceededBound, bytes: number): Buffer {
  const headers = `NATS/1.0${END}${DISCARDED_HEADER}: ${bound} ${bytes}${END}${END}`;
  const line = ['HMSG', ...words.filter((word) => word !== ''), headers.length, headers.length].join(' ');
  return Buffer.from(`${line}${END}${headers}${END}`, 'latin1');
}

function countOf(word: string | undefined): number {
  if (word === undefined || !/^\d{1,15}$/.test(word)) throw malformed('a message has no length');
  return Number(word);
}
