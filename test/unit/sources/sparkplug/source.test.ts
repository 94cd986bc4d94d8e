import { createRequire } from 'node:module';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../../src/base/logger.ts';
import type { MessageHandler, SubscribeOptions } from '../../../../src/broker/broker.ts';
import type { Message } from '../../../../src/broker/connection.ts';
import type { Gate } from '../../../../src/sources/intake/gate.ts';
import { pointsOf } from '../../../../src/sources/points.ts';
import { SparkplugSource } from '../../../../src/sources/sparkplug/sparkplug-source.ts';
import { makeIntakeBench, originOf, storeFault, tagOf } from '../sink-double.ts';

const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};
const { encodePayload } = get('spBv1.0');

const NODE = 'Plant1/press';
let bench: ReturnType<typeof makeIntakeBench>;
let source: SparkplugSource;
let gate: Gate;
let handler: MessageHandler;
let permitted: NonNullable<SubscribeOptions['permitted']>;
/** Topics to which the source published. */
let published: string[];
/** Warnings of the source status. */
let logged: { event: string }[];
let connectedMs: number;
let spec: { qos: number; group: string | undefined; rebirth: boolean };

beforeEach(() => open('source'));

/** Opens the source `cells`. */
function open(timeFrom: 'source' | 'arrival'): void {
  spec = { qos: 1, group: 'Plant1', rebirth: true };
  const values = ['a', 'b', 'oven/x', 'dev/c'].map((key) => ({
    key,
    from: originOf('sparkplug', 'cells', { metric: `press/${key}` }),
  }));
  const tags = new Map([['T', tagOf('T', 1, values)]]);
  bench = makeIntakeBench(tags);
  published = [];
  connectedMs = 1;
  const broker = {
    subscribe(_filters: readonly string[], taker: MessageHandler, options: SubscribeOptions) {
      handler = taker;
      permitted = options.permitted!;
      return () => {};
    },
    get connectedSinceMs() {
      return connectedMs;
    },
    state: () => ({
      connected: true,
      failures: 0,
      discarded: 0,
      redelivered: 0,
      window: { used: 0, size: 0 },
    }),
    publish: async (topic: string) => void published.push(topic),
  };
  const log = silentLogger();
  logged = [];
  log.warn = ((fields: { event: string }) => logged.push(fields)) as typeof log.warn;
  gate = bench.gateOf('cells', timeFrom, log);
  const points = pointsOf(tags, 'cells', bench.intake);
  gate.status.points = points;
  source = new SparkplugSource({
    source: { kind: 'sparkplug', name: 'cells', spec },
    points,
    gate,
    status: gate.status,
    brokers: { get: () => broker },
    clock: bench.clock,
    log: silentLogger(),
  } as never);
  source.start();
}

/** Delivers a message; `is` tells whether it was acknowledged. */
function deliver(type: string, seq: number, metrics: object[], device?: string): { is: string } {
  return deliverBytes(type, encodePayload({ timestamp: 1_700_000_000_000 + seq, seq, metrics }), device);
}

/** Payload with a metric that has a name and an integer, but no data type. */
function untyped(seq: number, name: string, value: number): Uint8Array {
  const metric = new BinaryWriter()
    .tag(1, WireType.LengthDelimited)
    .string(name)
    .tag(10, WireType.Varint)
    .uint32(value);
  const payload = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(metric.finish());
  return payload.tag(3, WireType.Varint).uint32(seq).finish();
}

function deliverBytes(type: string, payload: Uint8Array, device?: string): { is: string } {
  const [group, node] = NODE.split('/');
  const message: Message = {
    topic: `spBv1.0/${group}/${type}/${node}${device === undefined ? '' : `/${device}`}`,
    payload,
    qos: 1,
    retained: false,
    redelivered: false,
  };
  const state = { is: 'waiting' };
  handler(message)!.then(
    () => (state.is = 'acknowledged'),
    () => (state.is = 'rejected'),
  );
  return state;
}

const birth = () =>
  deliver('NBIRTH', 0, [
    { name: 'a', alias: 1, type: 'Int32', value: 10 },
    { name: 'b', alias: 2, type: 'Int32', value: 20 },
  ]);
const stored = () => bench.sink.stored.map(({ address, value }) => [address.split('/')[2], value]);

describe('Sparkplug B source without a birth certificate', () => {
  it('requests it on each new connection, and does not acknowledge messages with aliases until it arrives', async () => {
    expect(published).toEqual(['spBv1.0/Plant1/NCMD/press']);
    const aliased = deliver('NDATA', 7, [{ alias: 2, type: 'Int32', value: -5 }]);
    const named = deliver('NDATA', 8, [{ name: 'a', type: 'Int32', value: 3 }]);
    await bench.clock.advance(1_000);
    expect([aliased.is, named.is, stored()]).toEqual(['waiting', 'acknowledged', [['a', 3]]]);
    birth();
    await bench.clock.advance(0);
    expect(aliased.is).toBe('acknowledged');
    expect(stored().slice(1).sort()).toEqual([
      ['a', 10],
      ['b', -5],
      ['b', 20],
    ]);
    connectedMs = 2;
    await bench.clock.advance(1_000);
    expect(published).toHaveLength(2);
    expect(deliver('NDATA', 1, [{ alias: 2, type: 'Int32', value: 1 }]).is).toBe('waiting');
  });

  it('rejects waiting messages when it stops, so that the broker redelivers them', async () => {
    const aliased = deliver('NDATA', 7, [{ alias: 2, type: 'Int32', value: -5 }]);
    await source.stop();
    await bench.clock.advance(0);
    expect([aliased.is, stored()]).toEqual(['rejected', []]);
  });

  it('defines the sign of an integer without a data type, which is not stored before', async () => {
    const early = deliverBytes('NDATA', untyped(7, 'b', 4_294_967_285));
    const foreign = deliverBytes('NDATA', untyped(8, 'other', 1));
    await bench.clock.advance(1_000);
    expect([early.is, foreign.is, stored()]).toEqual(['waiting', 'acknowledged', []]);
    birth();
    deliverBytes('NDATA', untyped(1, 'b', 4_294_967_284));
    await bench.clock.advance(0);
    expect(early.is).toBe('acknowledged');
    expect(stored().filter(([key, value]) => key === 'b' && value !== 20)).toEqual([
      ['b', -11],
      ['b', -12],
    ]);
  });

  it('counts and reports metrics that require it and are discarded after 30 s', async () => {
    const early = deliverBytes('NDATA', untyped(7, 'b', 4_294_967_285));
    await bench.clock.advance(31_000);
    deliverBytes('NDATA', untyped(8, 'b', 5));
    await bench.clock.advance(0);
    expect([early.is, stored()]).toEqual(['acknowledged', []]);
    expect(gate.status.report(0)).toMatchObject({
      errors: 2,
      rejected: { count: 2, problem: 'press: no birth certificate defines the name or data type of a metric' },
    });
  });

  it('reports an integer that the birth certificate does not define', async () => {
    deliver('NBIRTH', 0, [{ name: 'a', type: 'Int32', value: 1 }]);
    deliverBytes('NDATA', untyped(1, 'b', 5));
    await bench.clock.advance(0);
    expect(stored()).toEqual([['a', 1]]);
    const problem = 'T b: the metric is the integer 5 without a data type, so its sign is unknown';
    expect(gate.status.report(0).rejected).toMatchObject({ count: 1, problem });
  });

  it('requests it after a gap, at most every 20 s, and immediately on a new connection', async () => {
    birth();
    deliver('NDATA', 5, []);
    deliver('NDATA', 6, []);
    expect(published).toHaveLength(1);
    await bench.clock.advance(20_000);
    expect(published).toHaveLength(2);
    birth();
    await bench.clock.advance(60_000);
    expect(published).toHaveLength(2);
    deliver('NDATA', 5, []);
    expect(published).toHaveLength(3);
    connectedMs = 2;
    await bench.clock.advance(500);
    expect(published).toHaveLength(4);
  });

  it('reports that the broker rejects the subscription to its messages', () => {
    permitted('spBv1.0/Plant1/+/press/#', false);
    expect(gate.status).toMatchObject({
      problem: 'the broker rejects the subscription to spBv1.0/Plant1/+/press/#',
      hint: expect.stringContaining('read access'),
    });
    permitted('spBv1.0/Plant1/+/press/#', true);
    expect(gate.status.problem).toBe('waiting for the birth certificate of press');
  });

  it('discards messages with aliases after 30 s, and names the missing right', async () => {
    const aliased = deliver('NDATA', 7, [
      { alias: 2, type: 'Int32', value: -5 },
      { name: 'a', type: 'Int32', value: 3 },
    ]);
    await bench.clock.advance(29_000);
    expect([aliased.is, gate.status.hint]).toEqual(['waiting', undefined]);
    await bench.clock.advance(2_000);
    expect([aliased.is, stored()]).toEqual(['acknowledged', [['a', 3]]]);
    expect(gate.status).toMatchObject({
      problem: 'waiting for the birth certificate of press',
      hint: expect.stringContaining('spBv1.0/Plant1/NCMD/press'),
    });
    // Later messages do not wait, so that the node does not block the session.
    const later = deliver('NDATA', 8, [{ alias: 2, type: 'Int32', value: 1 }]);
    await bench.clock.advance(0);
    expect(later.is).toBe('acknowledged');
    birth();
    await bench.clock.advance(1_000);
    expect(gate.status.hint).toBeUndefined();
  });

  it('discards messages of a device after 30 s if only the node and other devices send theirs', async () => {
    const early = deliver('DDATA', 7, [{ alias: 3, type: 'Int32', value: 5 }], 'oven');
    birth();
    await bench.clock.advance(20_000);
    expect(early.is).toBe('waiting');
    birth();
    await bench.clock.advance(15_000);
    expect(early.is).toBe('acknowledged');
    expect(gate.status.report(0)).toMatchObject({
      errors: 1,
      problem: 'waiting for the birth certificate of press',
      hint: expect.stringContaining('spBv1.0/Plant1/NCMD/press'),
    });
    deliver('DBIRTH', 1, [{ name: 'c', alias: 3, type: 'Int32', value: 5 }], 'oven');
    expect(gate.status.report(0)).toMatchObject({ problem: null, hint: null });
  });

  it('discards messages of an earlier session of the node', async () => {
    const bdSeq = (value: number) => ({ name: 'bdSeq', type: 'Int64', value });
    deliver('NBIRTH', 0, [bdSeq(1), { name: 'a', alias: 1, type: 'Int32', value: 10 }]);
    const missed = deliver('NDATA', 5, [{ alias: 1, type: 'Int32', value: 11 }]);
    // The aliases of the next session differ.
    deliver('NBIRTH', 0, [bdSeq(2), { name: 'b', alias: 1, type: 'Int32', value: 20 }]);
    await bench.clock.advance(0);
    expect([missed.is, stored()]).toEqual([
      'acknowledged',
      [
        ['a', 10],
        ['b', 20],
      ],
    ]);
  });
});

describe('Sparkplug B source whose node died', () => {
  it('names the node as offline, without a missing right, until its next message', async () => {
    // The birth certificate is still required.
    deliver('NDEATH', 0, []);
    await bench.clock.advance(31_000);
    expect(gate.status).toMatchObject({ problem: 'press is offline', hint: undefined });
    connectedMs = 2;
    await bench.clock.advance(31_000);
    expect(gate.status).toMatchObject({ problem: 'press is offline', hint: undefined });
    deliver('NDATA', 1, []);
    await bench.clock.advance(29_000);
    expect(gate.status).toMatchObject({ problem: 'waiting for the birth certificate of press', hint: undefined });
    await bench.clock.advance(2_000);
    expect(gate.status).toMatchObject({
      problem: 'waiting for the birth certificate of press',
      hint: expect.stringContaining('spBv1.0/Plant1/NCMD/press'),
    });
    birth();
    await bench.clock.advance(500);
    expect(gate.status).toMatchObject({ problem: undefined, hint: undefined });
  });
});

describe('Sparkplug B source', () => {
  it('names metrics without a number in the report, in a test of the source, and once in the log', async () => {
    const tested: unknown[] = [];
    gate.status.listen(({ point, problem }) => tested.push([point.name, problem]));
    const dataSet = { numOfColumns: 1, types: ['Int64'], columns: ['a'], rows: [[1]] };
    for (let seq = 0; seq < 20; seq++) {
      deliver('NBIRTH', 0, [
        { name: 'a', type: 'Double', value: Number.NaN },
        { name: 'b', type: 'DataSet', value: dataSet },
      ]);
    }
    const problems = ['the metric is NaN', 'the metric is of type DataSet, not a number'];
    expect(tested.slice(0, 2)).toEqual([
      ['T a', problems[0]],
      ['T b', problems[1]],
    ]);
    const { rejected, errors } = gate.status.report(0);
    expect([errors, rejected]).toEqual([40, expect.objectContaining({ count: 40, problem: `T b: ${problems[1]}` })]);
    await bench.clock.advance(30_000);
    const lines = logged.filter(({ event }) => event === 'source.not_a_number');
    // The first value is logged immediately, and all others in one entry.
    expect(lines).toMatchObject([{ value: 'T a', error: problems[0] }, { objects: 2 }]);
  });

  it('names a configured metric that the birth certificate of its node or device does not contain', async () => {
    deliver('NBIRTH', 0, [{ name: 'a', type: 'Int32', value: 1 }]);
    deliverBytes('DBIRTH', encodePayload({ seq: 1, metrics: [{ name: 'x', type: 'Int32', value: 1 }] }), 'dev');
    await bench.clock.advance(60_000);
    expect(gate.status.report(0)).toMatchObject({
      errors: 0,
      missing: {
        first: [
          { name: 'T b', problem: 'the birth certificate of press contains no metric "b"' },
          { name: 'T oven/x', problem: null },
          { name: 'T dev/c', problem: 'the birth certificate of press/dev contains no metric "c"' },
        ],
      },
    });
    deliver('NDATA', 2, [{ name: 'b', type: 'Int32', value: 2 }]);
    await bench.clock.advance(0);
    expect(gate.status.report(0).missing?.first.map(({ name }) => name)).toEqual(['T oven/x', 'T dev/c']);
  });

  it('counts a null metric as a reading without a value', async () => {
    birth();
    deliver('NDATA', 1, [{ name: 'a', type: 'Int32', value: null, isNull: true }]);
    await bench.clock.advance(0);
    expect(stored()).toEqual([
      ['a', 10],
      ['b', 20],
    ]);
    expect(gate.status.report(0)).toMatchObject({
      errors: 1,
      rejected: { count: 1, problem: 'T a: the metric is null' },
    });
  });

  it('reports and acknowledges a message whose values cannot be accepted, and stores the next one', async () => {
    birth();
    vi.spyOn(gate, 'write').mockImplementationOnce(() => {
      throw new TypeError('cannot read the metric');
    });
    const failed = deliver('NDATA', 1, [{ alias: 1, type: 'Int32', value: 11 }]);
    await bench.clock.advance(0);
    expect(failed.is).toBe('acknowledged');
    const problem = 'spBv1.0/Plant1/NDATA/press: cannot read the metric';
    expect(gate.status.report(0)).toMatchObject({ errors: 1, rejected: { count: 1, problem } });
    deliver('NDATA', 2, [{ name: 'a', type: 'Int32', value: 12 }]);
    await bench.clock.advance(0);
    expect(stored().at(-1)).toEqual(['a', 12]);
  });

  it('does not acknowledge a message that the store rejects', async () => {
    birth();
    vi.spyOn(gate, 'write').mockImplementationOnce(() => {
      throw storeFault('buffer.full');
    });
    const rejected = deliver('NDATA', 1, [{ alias: 1, type: 'Int32', value: 11 }]);
    await bench.clock.advance(0);
    expect([rejected.is, gate.status.report(0).rejected]).toEqual(['rejected', null]);
  });

  it('ignores nodes and groups that tags.yaml does not contain', async () => {
    const payload = encodePayload({
      timestamp: 1_700_000_000_000,
      seq: 0,
      metrics: [{ name: 'a', type: 'Int32', value: 5 }],
    });
    const message = { payload, qos: 1, retained: false, redelivered: false } as const;
    for (const topic of ['spBv1.0/Plant2/NBIRTH/press', 'spBv1.0/Plant1/NBIRTH/mill', 'spBv1.0/STATE/gateway']) {
      expect(handler({ ...message, topic })).toBeUndefined();
    }
    await bench.clock.advance(0);
    expect([stored(), gate.status.problem]).toEqual([[], 'waiting for the birth certificate of press']);
  });

  it('reads at most 1,000 edge nodes, and acknowledges and counts the messages of others', async () => {
    spec.group = undefined;
    const payload = encodePayload({ timestamp: 1_700_000_000_000, seq: 0, metrics: [] });
    const message = { payload, qos: 1, retained: false, redelivered: false } as const;
    for (let n = 0; n < 1_010; n++) await handler({ ...message, topic: `spBv1.0/G${n}/NBIRTH/press` });
    // The node of the configured group is known before its first message.
    expect(gate.status.errors).toBe(11);
  });
});

describe('Sparkplug B source with time_from: arrival', () => {
  it('rejects and counts historical metrics, whose arrival time is wrong', async () => {
    open('arrival');
    birth();
    const metric = { name: 'a', type: 'Int32', timestamp: 1_600_000_000_000 };
    deliver('NDATA', 1, [
      { ...metric, value: 11 },
      { ...metric, value: 12, isHistorical: true },
    ]);
    await bench.clock.advance(0);
    expect(stored()).toEqual([
      ['a', 10],
      ['b', 20],
      ['a', 11],
    ]);
    expect(gate.status.report(0).rejected).toMatchObject({ count: 1, problem: expect.stringContaining('historical') });
    expect(logged).toMatchObject([{ event: 'source.time_rejected' }]);
  });
});
