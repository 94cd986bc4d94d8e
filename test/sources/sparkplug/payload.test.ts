import { createRequire } from 'node:module';
import { describe, expect, it } from 'vitest';
import { EdgeNode } from '../../../src/sources/sparkplug/edge-node.ts';
import { decodePayload, numberOf } from '../../../src/sources/sparkplug/payload.ts';
import { rebirthCommand } from '../../../src/sources/sparkplug/rebirth-command.ts';

/** Eclipse Tahu's own encoder. */
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

describe('a Sparkplug B payload', () => {
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
    ['Boolean', true, 1],
    ['Boolean', false, 0],
    ['DateTime', 1_700_000_000_123, 1_700_000_000_123],
    ['String', 'seven', undefined],
  ])('of %s %s is read as Tahu wrote it', (type, value, expected) => {
    const { metrics, timeMs, seq } = decodePayload(encode([{ name: 'm', type, value }], { seq: 7 }));
    expect({ timeMs, seq }).toEqual({ timeMs: 1_700_000_000_000, seq: 7 });
    expect(metrics[0]!.name).toBe('m');
    expect(numberOf(metrics[0]!, undefined)).toBe(expected);
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

  it('tells what is null, historical, by alias, and when', () => {
    const { metrics } = decodePayload(
      encode([
        { name: 'a', type: 'Double', value: null, isNull: true },
        { alias: 12, type: 'Float', value: 2, isHistorical: true, timestamp: 1_600_000_000_000 },
      ]),
    );
    expect(metrics[0]).toMatchObject({ name: 'a', isNull: true });
    expect(metrics[1]).toMatchObject({ alias: 12, isHistorical: true, timeMs: 1_600_000_000_000, value: 2 });
  });

  it('is refused where it is none, and costs no more than its length', () => {
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
    // Groups within groups, without an end.
    expect(() => decodePayload(new Uint8Array(500_000).fill(0x2b))).toThrow();
  });

  it('that asks for a birth is understood by Tahu', () => {
    const { metrics, timestamp } = tahu.decodePayload(rebirthCommand(1_700_000_000_000));
    expect(Number(timestamp)).toBe(1_700_000_000_000);
    expect(metrics).toMatchObject([{ name: 'Node Control/Rebirth', type: 'Boolean', value: true }]);
  });
});

describe('an edge node', () => {
  const metric = (over: object) => decodePayload(encode([{ type: 'Double', value: 1, ...over }])).metrics[0]!;
  const message = (type: string, seq: number | undefined, metrics: object[], device?: string) => ({
    type,
    device,
    isKept: true,
    payload: { timeMs: undefined, seq, metrics: metrics.map(metric) },
  });
  const paths = (outcome: { values: { path: string }[] }) => outcome.values.map(({ path }) => path);

  it('is known by aliases from its birth on, each device below its name', () => {
    const node = new EdgeNode(['load', 'pump/P']);
    expect(paths(node.take(message('NBIRTH', 0, [{ name: 'load', alias: 1 }])))).toEqual(['load']);
    expect(paths(node.take(message('DBIRTH', 1, [{ name: 'P', alias: 2 }], 'pump')))).toEqual(['pump/P']);
    expect(paths(node.take(message('DDATA', 2, [{ alias: 2 }, { alias: 1 }], 'pump')))).toEqual(['pump/P', 'load']);
    for (let seq = 3; seq < 256; seq++) node.take(message('NDATA', seq, []));
    expect(node.take(message('NDATA', 0, [{ alias: 1 }])).rebirth).toBeUndefined();
  });

  it('makes nothing up where a message was missed: aliases may mean anything by then', () => {
    const node = new EdgeNode(['a', 'b']);
    expect(node.take(message('NDATA', 5, [{ alias: 1 }]))).toMatchObject({ values: [], unknown: 1 });
    node.take(message('NBIRTH', 0, [{ name: 'a', alias: 1 }]));
    const missed = node.take(message('NDATA', 2, [{ alias: 1 }, { name: 'a' }]));
    expect(missed).toMatchObject({ unknown: 1, rebirth: 'message 2 followed on message 0' });
    expect(paths(missed)).toEqual(['a']);
    node.take(message('NBIRTH', 0, [{ name: 'b', alias: 1 }]));
    expect(paths(node.take(message('NDATA', 1, [{ alias: 1 }])))).toEqual(['b']);
  });

  it.each([
    ['QoS 1 and the next sequence number', 1, true, ['a']],
    ['QoS 1 and a gap', 2, true, []],
    ['QoS 0', 1, false, []],
  ])('resolves aliases after a new connection for a message with %s: %i', (_, seq, isKept, resolved) => {
    const node = new EdgeNode(['a']);
    node.take(message('NBIRTH', 0, [{ name: 'a', alias: 1 }]));
    node.reconnected();
    expect(paths(node.take({ ...message('NDATA', seq, [{ alias: 1 }]), isKept }))).toEqual(resolved);
    expect(node.isStale).toBe(resolved.length === 0);
  });

  it('ignores aliases of other metrics and devices, and misses those of a configured device that is not born yet', () => {
    const node = new EdgeNode(['pump/P']);
    node.take(message('NBIRTH', 0, [{ name: 'load', alias: 1 }]));
    expect(node.take(message('NDATA', 1, [{ alias: 1 }, { alias: 7 }]))).toEqual({ values: [], unknown: 0 });
    expect(node.take(message('DDATA', 2, [{ alias: 3 }], 'fan'))).toEqual({ values: [], unknown: 0 });
    const early = message('DDATA', 3, [{ alias: 2 }], 'pump');
    expect(node.canResolve(early)).toBe(false);
    expect(node.take(early)).toMatchObject({ values: [], unknown: 1 });
    node.take(message('DBIRTH', 4, [{ name: 'P', alias: 2 }], 'pump'));
    expect(paths(node.takeEarlier(early)!)).toEqual(['pump/P']);
    node.take(message('DDEATH', 5, [], 'pump'));
    expect(node.canResolve(message('DDATA', 6, [{ alias: 2 }], 'pump'))).toBe(false);
  });

  it('continues after a restart with the next or a repeated message, and for the same metrics only', () => {
    const at = (seq: number, timeMs: number) => {
      const data = message('NDATA', seq, [{ alias: 1 }]);
      return { ...data, payload: { ...data.payload, timeMs } };
    };
    const node = new EdgeNode(['a']);
    const birth = message('NBIRTH', 0, [{ name: 'a', alias: 1 }]);
    node.take({ ...birth, payload: { ...birth.payload, timeMs: 100 } });
    for (let seq = 1; seq <= 5; seq++) node.take(at(seq, 100 + seq));
    const restored = (paths = ['a']) => {
      const later = new EdgeNode(paths);
      later.restore(node.position!, node.aliases);
      return later;
    };
    expect(paths(restored().take(at(6, 106)))).toEqual(['a']);
    const repeated = restored();
    expect(paths(repeated.take(at(3, 103)))).toEqual(['a']);
    expect(paths(repeated.take(at(4, 104)))).toEqual(['a']);
    expect(paths(restored().take(at(8, 108)))).toEqual([]);
    expect(paths(restored().take(at(3, 99)))).toEqual([]);
    expect(paths(restored(['a', 'b']).take(at(6, 106)))).toEqual([]);
  });

  it('dies by the death of this life, not of the one before', () => {
    const node = new EdgeNode([]);
    const birth = (bdSeq: number) => message('NBIRTH', 0, [{ name: 'bdSeq', type: 'Int64', value: bdSeq }]);
    const death = (bdSeq: number) => message('NDEATH', undefined, [{ name: 'bdSeq', type: 'Int64', value: bdSeq }]);
    node.take(birth(3));
    expect(node.take(death(2)).died).toBeUndefined();
    expect(node.isStale).toBe(false);
    expect(node.take(death(3)).died).toBe('');
    expect(node.isStale).toBe(true);
    expect(node.take(message('DDEATH', 4, [], 'pump')).died).toBe('pump/');
  });
});
