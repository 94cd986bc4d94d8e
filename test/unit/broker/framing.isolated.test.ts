import { Parser, type ParserEvent } from '@nats-io/transport-node';
import mqtt, { type Packet } from 'mqtt-packet';
import { describe, expect, it, vi } from 'vitest';
import { MAX_HEADER_BYTES, MAX_PACKET_BYTES, MAX_TOPIC_BYTES } from '../../../src/broker/discards.ts';
import { DISCARDED_HEADER, MAX_LINE_BYTES, NatsFraming, readDiscarded } from '../../../src/broker/nats/nats-framing.ts';
import { type DiscardedPublish, PacketFraming } from '../../../src/broker/packet-framing.ts';
import { MAX_FRAME_BYTES, WebSocketFraming } from '../../../src/broker/web-socket-framing.ts';

/** Splits bytes into pieces of increasing length, starting with one byte, so that every header is split. */
function* cut(bytes: Buffer): Iterable<Buffer> {
  for (let at = 0, length = 1; at < bytes.length; at += length, length = at < 4_000 ? 1 + (at % 7) : 65_536) {
    yield bytes.subarray(at, at + length);
  }
}

/** Pushes the bytes in pieces of one byte and returns how many bytes were copied for each of them. */
function copiesPerByte(bytes: Buffer, push: (piece: Buffer) => void): number {
  const copy = vi.spyOn(Buffer.prototype, 'copy');
  const concat = vi.spyOn(Buffer, 'concat');
  const from = vi.spyOn(Buffer, 'from');
  const fill = vi.spyOn(Uint8Array.prototype, 'set');
  let copied = 0;
  const count = () => {
    for (const { value } of copy.mock.results) copied += value as number;
    for (const { value } of concat.mock.results) copied += (value as Buffer).length;
    for (const [source] of from.mock.calls as unknown[][]) if (Buffer.isBuffer(source)) copied += source.length;
    for (const [source] of fill.mock.calls) copied += source.length;
    for (const spy of [copy, concat, from, fill]) spy.mockClear();
  };
  try {
    for (let at = 0; at < bytes.length; at++) {
      push(bytes.subarray(at, at + 1));
      if (at % 1_000 === 0) count();
    }
    count();
  } finally {
    for (const spy of [copy, concat, from, fill]) spy.mockRestore();
  }
  return copied / bytes.length;
}

describe('MQTT framing', () => {
  const publish = (topicBytes: number, payloadBytes: number, qos: 0 | 1 | 2, properties = 0) =>
    mqtt.generate(
      {
        cmd: 'publish',
        topic: 't'.repeat(topicBytes),
        payload: Buffer.alloc(payloadBytes),
        qos,
        messageId: 0x1234,
        dup: false,
        retain: false,
        ...(properties > 0 && {
          properties: { userProperties: { p: Array.from({ length: properties }, () => 'v'.repeat(30_000)) } },
        }),
      } as Packet,
      { protocolVersion: 5 },
    );

  function framed(chunks: Iterable<Buffer>) {
    const accepted: Buffer[] = [];
    const discarded: DiscardedPublish[] = [];
    const framing = new PacketFraming({
      version: 5,
      accept: (bytes) => accepted.push(Buffer.from(bytes)),
      publish: (packet) =>
        accepted.push(mqtt.generate({ cmd: 'publish', ...packet } as Packet, { protocolVersion: 5 })),
      discard: (one) => discarded.push(one),
    });
    for (const chunk of chunks) framing.push(chunk);
    return { accepted: Buffer.concat(accepted), discarded };
  }

  const pingresp = Buffer.from([0xd0, 0]);
  const within = [pingresp, publish(3, 5, 1), publish(MAX_TOPIC_BYTES, 0, 0), publish(9, 0, 2, 2), pingresp];
  const beyond = [
    publish(MAX_TOPIC_BYTES + 1, 0, 1),
    publish(9, MAX_PACKET_BYTES, 0),
    publish(9, 1, 2, Math.ceil(MAX_HEADER_BYTES / 30_000)),
  ];

  it.each([
    { how: 'in one piece', chunks: (bytes: Buffer) => [bytes] },
    { how: 'in small pieces', chunks: cut },
  ])('passes packets within the limits unchanged and in order: $how', ({ chunks }) => {
    const all = within.flatMap((one, at) => (beyond[at] ? [one, beyond[at]] : [one]));
    const { accepted, discarded } = framed(chunks(Buffer.concat(all)));
    expect(accepted.equals(Buffer.concat(within))).toBe(true);
    expect(discarded.map(({ bound, qos, messageId, bytes }) => [bound, qos, messageId, bytes])).toEqual([
      ['topic', 1, 0x1234, beyond[0]!.length],
      ['packet', 0, undefined, beyond[1]!.length],
      ['headers', 2, 0x1234, beyond[2]!.length],
    ]);
  });

  it.each([
    ['discarded long topics', 60_000, 0, 17],
    ['accepted long topics', MAX_TOPIC_BYTES, 0, 1_000],
    ['one long payload', 9, 1_000_000, 1],
  ])('copies each byte at most four times and reports whole packets: %s', (_, topic, payload, packets) => {
    const bytes = Buffer.concat(Array.from({ length: packets }, () => publish(topic, payload, 1)));
    const lengths: number[] = [];
    const framing = new PacketFraming({
      version: 5,
      accept: ({ length }) => lengths.push(length),
      publish: (packet) =>
        lengths.push(mqtt.generate({ cmd: 'publish', ...packet } as Packet, { protocolVersion: 5 }).length),
      discard: ({ bytes: length }) => lengths.push(length),
    });
    expect(copiesPerByte(bytes, (piece) => framing.push(piece))).toBeLessThan(4);
    expect(lengths).toEqual(Array.from({ length: packets }, () => bytes.length / packets));
  });

  it.each([
    ['a length of five bytes', 'c0ffffffff01'],
    ['a topic that is longer than its packet', '3203000974'],
    ['properties that are longer than their packet', '30050001740a00'],
    ['a SUBACK of 200 kB', '9080e20c'],
    ['a PUBLISH with QoS 3', '3606000174000100'],
  ])('rejects %s', (_, hex) => {
    expect(() => framed([Buffer.from(hex, 'hex')])).toThrow(expect.objectContaining({ code: 'broker.malformed' }));
  });
});

describe('WebSocket framing', () => {
  const HEAD = Buffer.from('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n');
  const frameOf = (first: number, payload: Buffer) => {
    const { length } = payload;
    const header = Buffer.from(length < 126 ? [first, length] : [first, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
    if (length >= 126) header.writeBigUInt64BE(BigInt(length), 2);
    return Buffer.concat([header, payload]);
  };

  function passed(chunks: Iterable<Buffer>): Buffer {
    const framing = new WebSocketFraming();
    return Buffer.concat([...chunks].flatMap((chunk) => framing.push(chunk).map((piece) => Buffer.from(piece))));
  }

  it.each([
    { how: 'in one piece', chunks: (bytes: Buffer) => [bytes] },
    { how: 'in small pieces', chunks: cut },
  ])('splits data frames into small messages and leaves control frames unchanged: $how', ({ chunks }) => {
    const data = Buffer.from(Array.from({ length: 200_000 }, (_, n) => n % 251));
    const ping = frameOf(0x89, Buffer.from('ping'));
    const bytes = [HEAD, frameOf(0x02, data), ping, frameOf(0x80, data.subarray(0, 3)), frameOf(0x82, Buffer.alloc(0))];
    const result = passed(chunks(Buffer.concat(bytes)));
    const seen = { data: [] as Buffer[], control: [] as Buffer[], longest: 0 };
    for (let rest = result.subarray(HEAD.length); rest.length > 0; ) {
      const [first, second] = rest as unknown as [number, number];
      const from = second === 126 ? 4 : 2;
      const length = second === 126 ? rest.readUInt16BE(2) : second;
      if (first === 0x82) seen.data.push(rest.subarray(from, from + length));
      else seen.control.push(rest.subarray(0, from + length));
      seen.longest = Math.max(seen.longest, length);
      rest = rest.subarray(from + length);
    }
    expect(Buffer.concat(seen.data).equals(Buffer.concat([data, data.subarray(0, 3)]))).toBe(true);
    expect(seen.control).toEqual([ping]);
    expect(seen.longest).toBeLessThanOrEqual(MAX_FRAME_BYTES);
  });

  it('copies each byte in a response header or frame at most eight times', () => {
    const head = Buffer.from(`HTTP/1.1 101 Switching Protocols\r\nA: ${'a'.repeat(30_000)}\r\n\r\n`);
    const framing = new WebSocketFraming();
    const bytes = Buffer.concat([head, frameOf(0x82, Buffer.alloc(1_000_000))]);
    expect(copiesPerByte(bytes, (piece) => void framing.push(piece))).toBeLessThan(8);
  });

  it.each([
    ['a masked frame', 'HTTP/1.1 101 X\r\n\r\n', '8281000000ff'],
    ['a control frame of 64 kB', 'HTTP/1.1 101 X\r\n\r\n', '897effff'],
  ])('rejects %s', (_, head, hex) => {
    const bytes = Buffer.concat([Buffer.from(head), Buffer.from(hex, 'hex')]);
    expect(() => passed([bytes])).toThrow(expect.objectContaining({ code: 'broker.malformed' }));
  });
});

describe('NATS framing', () => {
  const message = (bytes: number, subject = 'a.b', reply = ' $JS.ACK.x') =>
    `MSG ${subject} 7${reply} ${bytes}\r\n${'x'.repeat(bytes)}\r\n`;
  const withHeaders = (bytes: number) => {
    const headers = `NATS/1.0\r\nA: ${'h'.repeat(bytes)}\r\n\r\n`;
    return `HMSG a.b 7 ${headers.length} ${headers.length + 2}\r\n${headers}21\r\n`;
  };

  /** Returns the events of the client's own parser. */
  function read(chunks: Iterable<Buffer>) {
    const events: { kind: number; subject: string; reply: string; bytes: number; discarded: unknown }[] = [];
    const parser = new Parser({
      push: (next) => {
        const event = next as ParserEvent;
        const text = Buffer.from(event.data ?? []).toString();
        const header = new RegExp(`${DISCARDED_HEADER}: (.*)\r\n`).exec(text)?.[1];
        events.push({
          kind: event.kind,
          subject: Buffer.from(event.msg?.subject ?? []).toString(),
          reply: Buffer.from(event.msg?.reply ?? []).toString(),
          bytes: text.length,
          discarded: readDiscarded(header),
        });
      },
    });
    const framing = new NatsFraming();
    for (const chunk of chunks) for (const bytes of framing.push(chunk)) parser.parse(bytes);
    return events;
  }

  it.each([
    { how: 'in one piece', chunks: (bytes: Buffer) => [bytes] },
    { how: 'in small pieces', chunks: cut },
  ])('passes messages within the limits, and replaces larger ones with an empty message: $how', ({ chunks }) => {
    const text = [
      'INFO {}\r\nPING\r\n',
      message(5),
      message(0, 'a.b', ''),
      withHeaders(100),
      withHeaders(MAX_HEADER_BYTES),
      message(1, 's'.repeat(MAX_TOPIC_BYTES + 1)),
      message(MAX_PACKET_BYTES + 1),
      '+OK\r\n',
      message(3),
    ];
    const events = read(chunks(Buffer.from(text.join(''))));
    const messages = events.filter(({ kind }) => kind === 2);
    expect(events.map(({ kind }) => kind)).toEqual([3, 4, 2, 2, 2, 2, 2, 2, 0, 2]);
    expect(messages.map(({ discarded }) => discarded)).toEqual([
      undefined,
      undefined,
      undefined,
      { bound: 'headers', bytes: MAX_HEADER_BYTES + 19 },
      { bound: 'topic', bytes: 1 },
      { bound: 'packet', bytes: MAX_PACKET_BYTES + 1 },
      undefined,
    ]);
    expect(messages.map(({ reply }) => reply)).toEqual([
      '$JS.ACK.x',
      '',
      '',
      '',
      '$JS.ACK.x',
      '$JS.ACK.x',
      '$JS.ACK.x',
    ]);
    expect(Math.max(...messages.map(({ bytes }) => bytes))).toBeLessThan(1_000);
  });

  it('copies each byte in a line at most four times', () => {
    const framing = new NatsFraming();
    const line = `INFO ${'x'.repeat(60_000)}\r\n`;
    let accepted = 0;
    const copied = copiesPerByte(Buffer.from(line.repeat(17)), (piece) => {
      for (const bytes of framing.push(piece)) accepted += bytes.length;
    });
    expect(copied).toBeLessThan(4);
    expect(accepted).toBe(17 * line.length);
  });

  it.each([
    ['an unterminated line', 'M'.repeat(MAX_LINE_BYTES + 1)],
    ['a message that is longer than its line states', 'MSG a 1 2\r\nxxxx\r\n'],
    ['a message without a length', 'MSG a 1 many\r\n'],
    ['a line that the parser would read differently', 'MSG a 1 2\r90000000\n'],
  ])('rejects %s', (_, text) => {
    expect(() => read([Buffer.from(text)])).toThrow(expect.objectContaining({ code: 'broker.malformed' }));
  });
});
