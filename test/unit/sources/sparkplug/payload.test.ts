import { createRequire } from 'node:module';
import { deflateSync, gzipSync } from 'node:zlib';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { describe, expect, it } from 'vitest';
import { UNSHAPED } from '../../../../src/config/tags.ts';
import { EdgeNode } from '../../../../src/sources/sparkplug/edge-node.ts';
import { decodePayload, readingOf, rebirthCommand } from '../../../../src/sources/sparkplug/payload.ts';

/** Encoder from Eclipse Tahu. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array; decodePayload(bytes: Uint8Array): Decoded };
};
interface Decoded {
  timestamp: { toNumber(): number };
  metrics: { name: string; value: unknown; type: string }[];
}
const tahu = get('spBv1.0')!;
const encode = (metrics: object[], more: object = {}) =>
  tahu.encodePayload({ timestamp: 1_700_000_000_000, metrics, ...more });

describe('Sparkplug B payload', () => {
  it.each([
    ['Int8', -5, -5],
    ['Int16', -300, -300],
    ['Int32', -70_000, -70_000],
    ['Int64', -5_000_000_000, -5_000_000_000],
    ['UInt8', 200, 200],
    ['UInt16', 65_535, 65_535],
    ['UInt32', 4_294_967_295, 4_294_967_295],
    ['UInt64', 5_000_000_000, 5_000_000_000],
    ['Float', 1.5, 1.5],
    ['Double', -0.1, -0.1],
    ['Boolean', true, true],
    ['Boolean', false, false],
    ['DateTime', 1_700_000_000_123, 1_700_000_000_123],
    ['String', 'seven', 'seven'],
  ])('with the type %s and value %s is decoded to the value that Tahu encoded', (type, value, expected) => {
    const { metrics, timeMs, seq } = decodePayload(encode([{ name: 'm', type, value }], { seq: 7 }));
    expect({ timeMs, seq }).toEqual({ timeMs: 1_700_000_000_000, seq: 7 });
    expect(metrics[0]!.name).toBe('m');
    expect(readingOf(metrics[0]!, undefined, true)).toEqual({ raw: expected });
  });

  it.each([
    [192, 'good'],
    [216, 'good'],
    [64, 'uncertain'],
    [0, 'bad'],
    [500, 'bad'],
  ])('with the quality %i is %s', (code, quality) => {
    const properties = { Other: { type: 'String', value: 'x' }, Quality: { type: 'Int32', value: code } };
    const { metrics } = decodePayload(encode([{ name: 'm', type: 'Double', value: 1, properties }]));
    expect(metrics[0]!.quality).toBe(quality);
  });

  it('is decoded with timestamps for null, historical and aliased metrics', () => {
    const { metrics } = decodePayload(
      encode([
        { name: 'a', type: 'Double', value: null, isNull: true },
        { alias: 12, type: 'Float', value: 2, isHistorical: true, timestamp: 1_600_000_000_000 },
      ]),
    );
    expect(metrics[0]).toMatchObject({ name: 'a', isNull: true });
    expect(metrics[1]).toMatchObject({ alias: 12, timeMs: 1_600_000_000_000, value: 2 });
  });

  it('is rejected in linear time if it is invalid', () => {
    const sound = encode([
      { name: 'm', type: 'Double', value: 1, properties: { Quality: { type: 'Int32', value: 0 } } },
    ]);
    let refused = 0;
    for (let at = 0; at < sound.length; at++) {
      for (const byte of [0, 0x0b, 0x7f, 0xff]) {
        const broken = Uint8Array.from(sound);
        broken[at] = byte;
        try {
          decodePayload(broken);
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
          refused++;
        }
      }
    }
    expect(refused).toBeGreaterThan(10);
    // Nested groups without an end.
    expect(() => decodePayload(new Uint8Array(500_000).fill(0x2b))).toThrow();
  });

  it('with a rebirth request is decoded by Tahu', () => {
    const { metrics, timestamp } = tahu.decodePayload(rebirthCommand(1_700_000_000_000));
    expect(Number(timestamp)).toBe(1_700_000_000_000);
    expect(metrics).toMatchObject([{ name: 'Node Control/Rebirth', type: 'Boolean', value: true }]);
  });
});

describe('compressed Sparkplug B payload', () => {
  const compressed = (body: Uint8Array, algorithm?: string, more: object = {}) =>
    tahu.encodePayload({
      uuid: 'SPBV1.0_COMPRESSED',
      body,
      metrics: algorithm === undefined ? [] : [{ name: 'algorithm', type: 'String', value: algorithm }],
      ...more,
    });
  const plain = encode([{ name: 'm', type: 'Double', value: 1.5 }], { seq: 7 });

  it.each([
    ['GZIP', gzipSync(plain)],
    ['DEFLATE', deflateSync(plain)],
    [undefined, deflateSync(plain)],
  ])('with the algorithm %s is decoded to its content', (algorithm, body) => {
    expect(decodePayload(compressed(body, algorithm))).toEqual(decodePayload(plain));
  });

  it('has the sequence number from its envelope if the content has none', () => {
    const body = deflateSync(encode([{ name: 'm', type: 'Double', value: 1.5 }]));
    expect(decodePayload(compressed(body, 'DEFLATE', { seq: 9 })).seq).toBe(9);
  });

  it.each([
    ['is larger than 4 MiB', compressed(gzipSync(Buffer.alloc(64 * 1024 * 1024)), 'GZIP'), 'exceeds 4 MiB'],
    ['is corrupt', compressed(gzipSync(plain).subarray(0, 20), 'GZIP'), 'not valid GZIP'],
    ['has another format', compressed(gzipSync(plain), 'DEFLATE'), 'not valid DEFLATE'],
    ['has an unknown algorithm', compressed(plain, 'LZ4'), 'unknown compression algorithm "LZ4"'],
    ['is compressed twice', compressed(deflateSync(compressed(deflateSync(plain)))), 'compressed twice'],
    ['has more than 50,000 metrics', compressed(deflateSync(Buffer.from('1200'.repeat(50_001), 'hex'))), '50000'],
  ])('is rejected if its content %s', (_, bytes, reason) => {
    expect(() => decodePayload(bytes)).toThrow(reason);
  });
});

describe('Sparkplug metric', () => {
  const types = ['Int64'];
  const dataSet = { numOfColumns: 1, types, columns: ['a'], rows: [[1]] };
  const template = { isDefinition: true, metrics: [{ name: 'a', type: 'Int32', value: 1 }], parameters: [] };
  it.each([
    ['String', 'RUN', 'the metric is of type String ("RUN"), not a number'],
    ['Text', 'RUN', 'the metric is of type Text ("RUN"), not a number'],
    ['UUID', 'a-b', 'the metric is of type UUID ("a-b"), not a number'],
    ['DataSet', dataSet, 'the metric is of type DataSet, not a number'],
    ['Template', template, 'the metric is of type Template, not a number'],
    ['Bytes', Uint8Array.of(1, 2), 'the metric is of type Bytes, not a number'],
    ['Double', Number.NaN, 'the metric is NaN'],
    ['Float', Number.POSITIVE_INFINITY, 'the metric is Infinity'],
    ['String', '12.5', '12.5'],
    ['Boolean', true, true],
  ])('of type %s is read or named in its problem', (type, value, expected) => {
    const { metrics } = decodePayload(encode([{ name: 'm', type, value }]));
    const reading = readingOf(metrics[0]!, undefined, false);
    expect('problem' in reading ? reading.problem : reading.raw).toBe(expected);
  });

  it.each([
    [1, 11, '18446744073709551605', -11],
    [2, 11, '65525', -11],
    [3, 11, '18446744073709551605', -11],
    [3, 11, '4294967285', -11],
    [3, 11, '5000000000', 'the metric is 5000000000, which does not fit the type Int32'],
    [1, 10, '245', -11],
    [1, 10, '300', 'the metric is 300, which does not fit the type Int8'],
    [5, 10, '70000', 'the metric is 70000, which does not fit the type UInt8'],
    [7, 11, '4294967285', 4_294_967_285],
    [8, 11, '18446744073709551605', 2 ** 64],
  ])('of type %i in field %i with the integer %s is read as %s', (datatype, field, integer, expected) => {
    const metric = new BinaryWriter().tag(4, WireType.Varint).uint32(datatype).tag(field, WireType.Varint);
    const bytes = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(metric.uint64(integer).finish()).finish();
    const reading = readingOf(decodePayload(bytes).metrics[0]!, undefined, false);
    expect('problem' in reading ? reading.problem : reading.raw).toBe(expected);
  });

  it('of type String is a reading if its value has a map, and is null if marked as null', () => {
    const { metrics } = decodePayload(
      encode([
        { alias: 1, type: 'String', value: 'RUN' },
        { name: 'n', type: 'String', value: null, isNull: true },
      ]),
    );
    expect(readingOf({ ...metrics[0]!, datatype: undefined }, 12, true)).toEqual({ raw: 'RUN' });
    expect(readingOf(metrics[1]!, undefined, true)).toEqual({ problem: 'the metric is null' });
  });
});

describe('edge node', () => {
  const NOW_MS = 1_000;
  const metric = (over: object) => decodePayload(encode([{ type: 'Double', value: 1, ...over }])).metrics[0]!;
  const message = (type: string, seq: number | undefined, metrics: object[], device?: string) => ({
    type,
    device,
    payload: { timeMs: undefined, seq, metrics: metrics.map(metric) },
  });
  type Message = ReturnType<typeof message>;
  const nodeOf = (...all: string[]) =>
    new EdgeNode(new Map(all.map((path, series) => [path, [pointOf(path, series)]])));
  const pointOf = (name: string, series: number) => ({ name, series, everyMs: 0, shaping: UNSHAPED, spec: undefined });
  const paths = (node: EdgeNode, one: Message) => node.read(one).readings.map(({ point }) => point.name);
  /** Updates the state, and returns the paths of the values in a message. */
  const receive = (node: EdgeNode, ...args: Parameters<typeof message>) => {
    node.observe(message(...args), NOW_MS);
    return paths(node, message(...args));
  };

  it('resolves aliases after its birth certificate, with device metrics below the device name', () => {
    const node = nodeOf('load', 'pump/P');
    expect(receive(node, 'NBIRTH', 0, [{ name: 'load', alias: 1 }])).toEqual(['load']);
    expect(receive(node, 'DBIRTH', 1, [{ name: 'P', alias: 2 }], 'pump')).toEqual(['pump/P']);
    expect(receive(node, 'DDATA', 2, [{ alias: 2 }], 'pump')).toEqual(['pump/P']);
    for (let seq = 3; seq < 256; seq++) receive(node, 'NDATA', seq, []);
    receive(node, 'NDATA', 0, [{ alias: 1 }]);
    expect(node.nextRequest(NOW_MS)).toBeUndefined();
  });

  it('resolves an alias that two devices use, but not an alias that a birth certificate uses twice', () => {
    const node = nodeOf('pump/P', 'fan/speed', 'fan/power');
    receive(node, 'NBIRTH', 0, []);
    receive(node, 'DBIRTH', 1, [{ name: 'P', alias: 1 }], 'pump');
    receive(
      node,
      'DBIRTH',
      2,
      [
        { name: 'speed', alias: 1 },
        { name: 'power', alias: 5 },
        { name: 'noise', alias: 5 },
      ],
      'fan',
    );
    expect(receive(node, 'DDATA', 3, [{ alias: 1 }], 'pump')).toEqual(['pump/P']);
    expect(receive(node, 'DDATA', 4, [{ alias: 1 }, { alias: 5 }], 'fan')).toEqual(['fan/speed']);
  });

  it('does not resolve an alias that a later birth certificate uses for another metric', () => {
    const node = nodeOf('pump/P');
    receive(node, 'NBIRTH', 0, []);
    receive(node, 'DBIRTH', 1, [{ name: 'P', alias: 5 }], 'pump');
    receive(node, 'DBIRTH', 2, [{ name: 'other', alias: 5 }], 'pump');
    expect(receive(node, 'DDATA', 3, [{ alias: 5 }], 'pump')).toEqual([]);
  });

  it('does not resolve aliases after a missed message', () => {
    const node = nodeOf('a', 'b');
    receive(node, 'NBIRTH', 0, [{ name: 'a', alias: 1 }]);
    expect(receive(node, 'NDATA', 2, [{ alias: 1 }, { name: 'a' }])).toEqual(['a']);
    expect(node.read(message('NDATA', 2, [{ alias: 1 }])).unknown).toBe(1);
    expect(node.nextRequest(NOW_MS)).toBe('message 2 followed message 0');
    receive(node, 'NBIRTH', 0, [{ name: 'b', alias: 1 }]);
    expect(receive(node, 'NDATA', 1, [{ alias: 1 }])).toEqual(['b']);
  });

  it('ignores aliases of other metrics and devices, and counts unknown aliases of a configured device before its birth certificate', () => {
    const node = nodeOf('pump/P');
    receive(node, 'NBIRTH', 0, [{ name: 'load', alias: 1 }]);
    const ignored = [message('NDATA', 1, [{ alias: 1 }, { alias: 7 }]), message('DDATA', 2, [{ alias: 3 }], 'fan')];
    for (const one of ignored) expect(node.read(one)).toEqual({ readings: [], unknown: 0 });
    const early = message('DDATA', 1, [{ alias: 2 }], 'pump');
    expect(node.canResolve(early)).toBe(false);
    expect(node.read(early)).toEqual({ readings: [], unknown: 1 });
    receive(node, 'DBIRTH', 1, [{ name: 'P', alias: 2 }], 'pump');
    expect(paths(node, early)).toEqual(['pump/P']);
    receive(node, 'DDEATH', 2, [], 'pump');
    expect(node.canResolve(early)).toBe(false);
  });

  it('ignores a death certificate from a previous session', () => {
    const node = nodeOf('load', 'pump/P');
    const bdSeq = (value: number) => [{ name: 'bdSeq', type: 'Int64', value }];
    receive(node, 'NBIRTH', 0, bdSeq(3));
    expect(receive(node, 'NDEATH', undefined, bdSeq(2))).toEqual([]);
    expect(node.isDead).toBe(false);
    expect(receive(node, 'DDEATH', 1, [], 'pump')).toEqual(['pump/P']);
    expect(receive(node, 'NDEATH', undefined, bdSeq(3))).toEqual(['load', 'pump/P']);
    expect(node.isDead).toBe(true);
  });
});
