/**
 * Stage between a socket and the MQTT parser. Reads the head of each packet: the fixed header and, for a PUBLISH, the
 * topic, packet id and length of the properties. Passes on complete packets within the size limits. A PUBLISH without
 * properties is passed on parsed, because its head is already known and the parser needs several times as long. The
 * bytes of a larger PUBLISH are dropped as they arrive. The parser would store an object per chunk, which is expensive
 * for one-byte chunks.
 *
 * Stores at most one incomplete packet within the limits. The cost is linear in the bytes received, regardless of the
 * chunk size.
 */
import type { IPublishPacket } from 'mqtt-packet';
import { BrokerError } from './broker-error.ts';
import { type DiscardedMessage, exceededBound } from './discards.ts';
import { GrowingBuffer } from './growing-buffer.ts';

/** A PUBLISH that was not passed on. */
export interface DiscardedPublish extends DiscardedMessage {
  qos: 0 | 1 | 2;
  /** Packet ID of a QoS 1 or 2 message. */
  messageId: number | undefined;
}

/** Members of a parsed PUBLISH. */
export type PublishPacket = Omit<IPublishPacket, 'cmd' | 'messageId'> & { messageId?: number | undefined };

export interface FramingOptions {
  version: 5 | 3;
  /** Receives the bytes of accepted packets, in order. */
  accept(bytes: Buffer): void;
  /** Receives an accepted PUBLISH without properties, in order. Its payload is only valid during the call. */
  publish(packet: PublishPacket): void;
  /** Called when all bytes of an oversized PUBLISH have arrived. */
  discard(publish: DiscardedPublish): void;
}

interface Head {
  /** Length of the whole packet; if the head is incomplete, the length at which parsing can continue. */
  bytes: number;
  discarded?: DiscardedPublish;
  /** Set if the packet is a complete PUBLISH without properties. */
  publish?: PublishPacket;
}

const PUBLISH = 3;
/** Limit for a packet other than PUBLISH. */
const MAX_CONTROL_BYTES = 128 * 1024;

export class PacketFraming {
  readonly #options: FramingOptions;
  /** The incomplete packet or its head. Empty while a packet is discarded. */
  readonly #incomplete = new GrowingBuffer();
  /** Length of `#incomplete` at which its head can be parsed further or the packet is complete. */
  #incompleteUntil = 0;
  #discarding: { publish: DiscardedPublish; bytesLeft: number } | undefined;

  constructor(options: FramingOptions) {
    this.#options = options;
  }

  /** Throws a `BrokerError` if the bytes are not valid MQTT data. */
  push(chunk: Buffer): void {
    let at = 0;
    while (this.#incomplete.length > 0 && at < chunk.length) {
      const end = Math.min(chunk.length, at + this.#incompleteUntil - this.#incomplete.length);
      this.#incomplete.add(chunk.subarray(at, end));
      at = end;
      if (this.#incomplete.length === this.#incompleteUntil) this.#readIncomplete();
    }
    if (at < chunk.length) this.#readPackets(chunk.subarray(at));
  }

  #readIncomplete(): void {
    const head = readHead(this.#incomplete.bytes, 0, this.#options.version);
    this.#incompleteUntil = head.bytes;
    if (head.discarded) this.#discard(head.discarded, head.bytes - this.#incomplete.drain().length);
    else if (this.#incomplete.length === head.bytes) {
      const packet = this.#incomplete.drain();
      if (head.publish) this.#options.publish(head.publish);
      else this.#options.accept(packet);
    }
  }

  #readPackets(bytes: Buffer): void {
    // Consecutive accepted packets are passed on together.
    let acceptedFrom = 0;
    let at = 0;
    const passOn = () => {
      if (at > acceptedFrom) this.#options.accept(bytes.subarray(acceptedFrom, at));
    };
    try {
      while (at < bytes.length) {
        if (this.#discarding) {
          const { publish, bytesLeft } = this.#discarding;
          const dropped = Math.min(bytesLeft, bytes.length - at);
          this.#discard(publish, bytesLeft - dropped);
          at += dropped;
          acceptedFrom = at;
          continue;
        }
        const head = readHead(bytes, at, this.#options.version);
        if (head.discarded) {
          passOn();
          acceptedFrom = at;
          this.#discarding = { publish: head.discarded, bytesLeft: head.bytes };
        } else if (bytes.length - at < head.bytes) {
          this.#incomplete.add(bytes.subarray(at));
          this.#incompleteUntil = head.bytes;
          return;
        } else if (head.publish) {
          passOn();
          at += head.bytes;
          acceptedFrom = at;
          this.#options.publish(head.publish);
        } else at += head.bytes;
      }
    } finally {
      // Packets before a malformed one are still passed on.
      passOn();
    }
  }

  #discard(publish: DiscardedPublish, bytesLeft: number): void {
    this.#discarding = bytesLeft > 0 ? { publish, bytesLeft } : undefined;
    if (bytesLeft === 0) this.#options.discard(publish);
  }
}

/** Parses the packet at `from` as far as possible. */
function readHead(bytes: Buffer, from: number, version: 5 | 3): Head {
  const remaining = readLength(bytes, from + 1);
  if (remaining === undefined) return { bytes: bytes.length - from + 1 };
  const end = remaining.end + remaining.value;
  const head: Head = { bytes: end - from };
  const first = bytes[from]!;
  if (first >> 4 !== PUBLISH) {
    if (head.bytes > MAX_CONTROL_BYTES) throw malformed(`a packet of type ${first >> 4} has ${head.bytes} bytes`);
    return head;
  }
  const qos = ((first >> 1) & 3) as 0 | 1 | 2 | 3;
  const topicAt = remaining.end + 2;
  if (topicAt > end) throw malformed('a PUBLISH has no topic');
  if (bytes.length < topicAt) return { bytes: topicAt - from };
  const topicEnd = topicAt + bytes.readUInt16BE(remaining.end);
  const idEnd = topicEnd + (qos === 0 ? 0 : 2);
  if (idEnd > end) throw malformed('a topic is longer than its packet');
  if (bytes.length < idEnd) return { bytes: idEnd - from };
  if (qos === 3) throw malformed('a PUBLISH has QoS 3');
  const properties = version === 5 ? readLength(bytes, idEnd) : { value: 0, end: idEnd };
  if (properties === undefined) return { bytes: bytes.length - from + 1 };
  if (properties.end + properties.value > end) throw malformed('properties are longer than their packet');
  const bound = exceededBound({ packet: head.bytes, topic: topicEnd - topicAt, headers: properties.value });
  if (bound === undefined && (properties.value > 0 || bytes.length < end)) return head;
  const topic = bytes.toString('utf8', topicAt, topicEnd);
  const messageId = qos === 0 ? undefined : bytes.readUInt16BE(topicEnd);
  if (bound !== undefined) return { ...head, discarded: { topic, bytes: head.bytes, bound, qos, messageId } };
  const payload = bytes.subarray(properties.end, end);
  const dup = (first & 8) !== 0;
  const retain = (first & 1) !== 0;
  head.publish = { topic, payload, qos, dup, retain, messageId, length: remaining.value };
  return head;
}

/**
 * Parses a variable byte integer (MQTT 5 section 1.5.5) and returns its end; `undefined` if more bytes are needed.
 */
function readLength(bytes: Buffer, from: number): { value: number; end: number } | undefined {
  let value = 0;
  for (let digits = 0; digits < 4; digits++) {
    const byte = bytes[from + digits];
    if (byte === undefined) return undefined;
    value += (byte & 0x7f) * 0x80 ** digits;
    if (byte < 0x80) return { value, end: from + digits + 1 };
  }
  throw malformed('a length has more than four bytes');
}

function malformed(what: string): BrokerError {
  return new BrokerError(`the broker sent a malformed packet: ${what}`, { code: 'broker.malformed', retryable: true });
}
