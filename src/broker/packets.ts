/**
 * Splits the bytes that a broker sends into MQTT packets and limits their size before memory is allocated. Stores at
 * most one incomplete packet. A PUBLISH over a limit is dropped as it arrives, except its head, which contains the
 * packet ID for the acknowledgement.
 *
 * Packets are parsed by mqtt-packet. Only a PUBLISH without properties is parsed here: its head is read for the limits
 * anyway, and the parser takes several times as long.
 */
import mqtt, { type IPublishPacket, type Packet, type Parser } from 'mqtt-packet';
import { malformed } from './broker-error.ts';
import { type ExceededBound, exceededBound, MAX_PACKET_BYTES } from './limits.ts';

/** A PUBLISH over a size limit. */
export interface DiscardedPublish {
  cmd: 'discarded';
  topic: string;
  qos: 0 | 1 | 2;
  messageId: number | undefined;
  /** Size of the whole packet. */
  bytes: number;
  bound: ExceededBound;
}

const PUBLISH = 3;
/** Limit for a packet other than PUBLISH. */
const MAX_CONTROL_BYTES = 128 * 1024;
/** Maximum length of a fixed header: one byte for type and flags, and four for the length. */
const FIXED_HEADER_BYTES = 5;
/** Maximum length of the head of a PUBLISH: fixed header, topic with its length, packet ID, length of the properties. */
const PUBLISH_HEAD_BYTES = FIXED_HEADER_BYTES + 2 + 65_535 + 2 + 4;

/** Returns the version number that packets contain: 4 means MQTT 3.1.1. */
export const protocolVersionOf = (version: 5 | 3) => (version === 5 ? 5 : 4);

export class PacketReader {
  readonly #parser: Parser;
  readonly #version: 5 | 3;
  readonly #parsed: Packet[] = [];
  /** Fixed header of the current packet. */
  readonly #header = Buffer.alloc(FIXED_HEADER_BYTES);
  #headerBytes = 0;
  /** Current packet, or the head of a PUBLISH that is too large. */
  #packet: Buffer | undefined;
  /** Size of the current packet, and the number of its bytes that have arrived. */
  #bytes = 0;
  #arrived = 0;

  constructor(version: 5 | 3) {
    this.#version = version;
    this.#parser = mqtt.parser({ protocolVersion: protocolVersionOf(version) });
    // Without a listener for errors, the parser throws them.
    this.#parser.on('packet', (packet) => this.#parsed.push(packet));
  }

  /** Yields the packets that the bytes complete. Throws an error if the bytes are not valid MQTT data. */
  *read(chunk: Buffer): Generator<Packet | DiscardedPublish> {
    for (let at = 0; at < chunk.length; ) {
      if (this.#packet === undefined) this.#readHeader(chunk[at++]!);
      else {
        const count = Math.min(this.#bytes - this.#arrived, chunk.length - at);
        if (this.#arrived < this.#packet.length) chunk.copy(this.#packet, this.#arrived, at, at + count);
        this.#arrived += count;
        at += count;
      }
      if (this.#packet && this.#arrived === this.#bytes) yield this.#complete(this.#packet);
    }
  }

  #readHeader(byte: number): void {
    this.#header[this.#headerBytes++] = byte;
    const length = readLength(this.#header, 1, this.#headerBytes);
    if (length === undefined) return;
    this.#bytes = this.#headerBytes + length.value;
    this.#arrived = this.#headerBytes;
    const type = this.#header[0]! >> 4;
    if (type !== PUBLISH && this.#bytes > MAX_CONTROL_BYTES) {
      throw malformed(`a packet of type ${type} has ${this.#bytes} bytes`);
    }
    this.#packet = Buffer.allocUnsafe(this.#bytes > MAX_PACKET_BYTES ? PUBLISH_HEAD_BYTES : this.#bytes);
    this.#header.copy(this.#packet, 0, 0, this.#headerBytes);
  }

  #complete(packet: Buffer): Packet | DiscardedPublish {
    const from = this.#headerBytes;
    this.#packet = undefined;
    this.#headerBytes = 0;
    const isPublish = packet[0]! >> 4 === PUBLISH;
    return (isPublish && readPublish(packet, from, this.#bytes, this.#version)) || this.#parse(packet);
  }

  #parse(packet: Buffer): Packet {
    this.#parser.parse(packet);
    const parsed = this.#parsed.shift();
    if (parsed === undefined) throw malformed('incomplete');
    return parsed;
  }
}

/**
 * Reads a PUBLISH whose variable header begins at `from`. `bytes`: size of the packet, which may be truncated. Returns
 * `undefined` if it has properties and is within the limits.
 */
function readPublish(
  packet: Buffer,
  from: number,
  bytes: number,
  version: 5 | 3,
): IPublishPacket | DiscardedPublish | undefined {
  const flags = packet[0]!;
  const qos = ((flags >> 1) & 3) as 0 | 1 | 2 | 3;
  if (qos === 3) throw malformed('a PUBLISH has QoS 3');
  const topicFrom = from + 2;
  if (topicFrom > packet.length) throw malformed('a PUBLISH has no topic');
  const topicEnd = topicFrom + packet.readUInt16BE(from);
  const idEnd = topicEnd + (qos === 0 ? 0 : 2);
  if (idEnd > packet.length) throw malformed('a topic is longer than its packet');
  const properties = version === 5 ? readLength(packet, idEnd, packet.length) : { value: 0, end: idEnd };
  if (!properties || properties.end + properties.value > bytes) {
    throw malformed('properties are longer than their packet');
  }
  const bound = exceededBound(bytes, topicEnd - topicFrom, properties.value);
  if (bound === undefined && properties.value > 0) return undefined;
  const topic = packet.toString('utf8', topicFrom, topicEnd);
  const messageId = qos === 0 ? undefined : packet.readUInt16BE(topicEnd);
  if (bound !== undefined) return { cmd: 'discarded', topic, qos, messageId, bytes, bound };
  const payload = packet.subarray(properties.end);
  const publish: IPublishPacket = {
    cmd: 'publish',
    topic,
    payload,
    qos,
    dup: (flags & 8) !== 0,
    retain: (flags & 1) !== 0,
    length: bytes,
  };
  if (messageId !== undefined) publish.messageId = messageId;
  return publish;
}

/** Reads a variable byte integer (MQTT 5 section 1.5.5). Returns `undefined` if it does not end before `end`. */
function readLength(bytes: Buffer, from: number, end: number): { value: number; end: number } | undefined {
  let value = 0;
  for (let digit = 0; digit < 4 && from + digit < end; digit++) {
    const byte = bytes[from + digit]!;
    value += (byte & 0x7f) * 0x80 ** digit;
    if (byte < 0x80) return { value, end: from + digit + 1 };
  }
  if (end - from >= 4) throw malformed('a length has more than four bytes');
  return undefined;
}
