/**
 * The stage between a socket and the MQTT parser. The framing reads the first bytes of each packet (fixed header; of a PUBLISH also topic,
 * packet id and length of the properties) and passes whole packets on if they are within the bounds. The bytes of any other PUBLISH are
 * dropped as they arrive. The parser would keep an object for each piece, which costs far more than a piece of one byte.
 *
 * Holds at most one incomplete packet within the bounds. The work is linear in the bytes received, however small the pieces are.
 */
import { BrokerError } from './broker-error.ts';
import { type DiscardedMessage, exceededBound } from './discards.ts';
import { GrowingBuffer } from './growing-buffer.ts';

/** A PUBLISH that was not passed on. */
export interface DiscardedPublish extends DiscardedMessage {
  qos: 0 | 1 | 2;
  /** Of QoS 1 and 2. */
  messageId: number | undefined;
}

export interface FramingOptions {
  version: 5 | 3;
  /** Gets the bytes of accepted packets, in order. */
  accept(bytes: Buffer): void;
  /** All bytes of a PUBLISH that exceeds a bound have arrived. */
  discard(publish: DiscardedPublish): void;
}

interface Head {
  /** Length of the whole packet; if the head is incomplete, the length at which more of it can be read. */
  bytes: number;
  discarded?: DiscardedPublish;
}

const PUBLISH = 3;
/** Of a packet other than PUBLISH. */
const MAX_CONTROL_BYTES = 128 * 1024;

export class PacketFraming {
  readonly #options: FramingOptions;
  /** The incomplete packet, or its head. Not of a packet that is discarded. */
  readonly #held = new GrowingBuffer();
  /** Length of `#held` at which its head can be read further or the packet is complete. */
  #heldUntil = 0;
  #discarding: { publish: DiscardedPublish; bytesLeft: number } | undefined;

  constructor(options: FramingOptions) {
    this.#options = options;
  }

  /** Throws a `BrokerError` if the bytes are not MQTT. */
  push(chunk: Buffer): void {
    let at = 0;
    while (this.#held.length > 0 && at < chunk.length) {
      const end = Math.min(chunk.length, at + this.#heldUntil - this.#held.length);
      this.#held.add(chunk.subarray(at, end));
      at = end;
      if (this.#held.length === this.#heldUntil) this.#readHeld();
    }
    if (at < chunk.length) this.#readPackets(chunk.subarray(at));
  }

  #readHeld(): void {
    const head = readHead(this.#held.bytes, this.#options.version);
    this.#heldUntil = head.bytes;
    if (head.discarded) this.#discard(head.discarded, head.bytes - this.#held.take().length);
    else if (this.#held.length === head.bytes) this.#options.accept(this.#held.take());
  }

  #readPackets(bytes: Buffer): void {
    // Accepted packets that follow each other are passed on together.
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
        const rest = bytes.subarray(at);
        const head = readHead(rest, this.#options.version);
        if (head.discarded) {
          passOn();
          acceptedFrom = at;
          this.#discarding = { publish: head.discarded, bytesLeft: head.bytes };
        } else if (rest.length < head.bytes) {
          this.#held.add(rest);
          this.#heldUntil = head.bytes;
          return;
        } else at += head.bytes;
      }
    } finally {
      // Packets before a malformed one count.
      passOn();
    }
  }

  #discard(publish: DiscardedPublish, bytesLeft: number): void {
    this.#discarding = bytesLeft > 0 ? { publish, bytesLeft } : undefined;
    if (bytesLeft === 0) this.#options.discard(publish);
  }
}

/** Reads the first packet in `bytes` as far as possible. */
function readHead(bytes: Buffer, version: 5 | 3): Head {
  const incomplete = (needed: number): Head => ({ bytes: needed });
  const remaining = readLength(bytes, 1);
  if (remaining === undefined) return incomplete(bytes.length + 1);
  const head: Head = { bytes: remaining.end + remaining.value };
  const [first = 0] = bytes;
  if (first >> 4 !== PUBLISH) {
    if (head.bytes > MAX_CONTROL_BYTES) throw malformed(`a packet of type ${first >> 4} has ${head.bytes} bytes`);
    return head;
  }
  const qos = ((first >> 1) & 3) as 0 | 1 | 2;
  const topicAt = remaining.end + 2;
  if (topicAt > head.bytes) throw malformed('a PUBLISH has no topic');
  if (bytes.length < topicAt) return incomplete(topicAt);
  const topicEnd = topicAt + bytes.readUInt16BE(remaining.end);
  const idEnd = topicEnd + (qos === 0 ? 0 : 2);
  if (idEnd > head.bytes) throw malformed('a topic is longer than its packet');
  if (bytes.length < idEnd) return incomplete(idEnd);
  const properties = version === 5 ? readLength(bytes, idEnd) : { value: 0, end: idEnd };
  if (properties === undefined) return incomplete(bytes.length + 1);
  if (properties.end + properties.value > head.bytes) throw malformed('properties are longer than their packet');
  const bound = exceededBound({ packet: head.bytes, topic: topicEnd - topicAt, headers: properties.value });
  if (bound !== undefined) {
    const messageId = qos === 0 ? undefined : bytes.readUInt16BE(topicEnd);
    head.discarded = { topic: bytes.toString('utf8', topicAt, topicEnd), bytes: head.bytes, bound, qos, messageId };
  }
  return head;
}

/** A variable byte integer (MQTT 5 section 1.5.5), and where it ends; `undefined` if more bytes are needed. */
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
