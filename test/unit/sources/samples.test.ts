import { describe, expect, it } from 'vitest';
import { StreamTimes } from '../../../src/sources/intake/stamps.ts';
import { type MessageValue, readMessage } from '../../../src/sources/messages/payload.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { check } from '../config/folder.ts';
import { makeIntakeBench, originOf, tagOf } from './sink-double.ts';

const AT = { topic: 'a', template: 'a' };

function read(spec: Omit<MessageValue, 'topic' | 'template'>, payload: string, timeOf?: (series: number) => number) {
  const value = { key: 'v', from: originOf<MessageValue>('mqtt', 's', { ...AT, ...spec }) };
  const tags = new Map([['T', tagOf('T', 1, [value])]]);
  const bench = makeIntakeBench(tags);
  const gate = bench.gateOf('s');
  const points = pointsOf<MessageValue>(tags, 's', bench.intake);
  const outcome = readMessage({ payload: Buffer.from(payload) }, points, { timeOf, arrivalMs: bench.clock.wallMs() });
  gate.record(outcome.readings);
  return { ...bench, gate, outcome, point: points[0]! };
}

describe('samples in a message', () => {
  it('are not read from the length of a list', async () => {
    const { outcome } = read({ samples: '/s', at: '/length' }, '{"s":[[1,2,3]]}');
    expect(outcome.problem).toBeDefined();
  });

  it('are stored with individual timestamps and statuses', async () => {
    const spec = { samples: '/data/samples', at: '/v', time: '/t', status: '/q' };
    const message = '{"data":{"samples":[{"v":1.5,"t":1790000000000},{"v":"2","t":1790000000100,"q":"bad"}]}}';
    const { gate, sink, outcome } = read(spec, message);
    expect(outcome.problem).toBeUndefined();
    await gate.write([]);
    expect(sink.stored.map(({ value, timeMs, status }) => [value, timeMs, status > 0])).toEqual([
      [1.5, 1_790_000_000_000, false],
      [2, 1_790_000_000_100, true],
    ]);
  });

  it('can be a list of numbers, and get different arrival timestamps', async () => {
    const { gate, sink } = read({ samples: '' }, '[1, 2, 3]');
    await gate.write([]);
    expect(sink.stored.map(({ value }) => value)).toEqual([1, 2, 3]);
    expect(new Set(sink.stored.map(({ timeMs }) => timeMs)).size).toBe(3);
  });

  it('are stored without unreadable samples, which are reported by number', async () => {
    const { gate, sink, outcome } = read({ samples: '/s', at: '/v' }, '{"s":[{"v":1},{"w":2},{"v":null},{"v":4}]}');
    await gate.write([]);
    expect(outcome.problem).toBeUndefined();
    expect(sink.stored.map(({ value }) => value)).toEqual([1, 4]);
    expect(gate.status.lastAcceptedMs).toBeDefined();
    const { outcome: other } = read({ samples: '/s', at: '/v' }, '{"s":[{"w":2}]}');
    expect(other.problem).toBe('sample 1: no value at /v');
  });

  it.each([
    ['{"s":5}', 'the value at /s is not a list'],
    ['{}', 'the value at /s is not a list'],
    [`{"s":[${'1,'.repeat(50_000)}1]}`, 'the value at /s has more than 50000 samples'],
    ['{"s":[]}', undefined],
  ])('reports a message without a usable list (%#)', (message, problem) => {
    expect(read({ samples: '/s' }, message).outcome.problem).toBe(problem);
  });

  it('get different timestamps based on the stream storage time', () => {
    const times = new StreamTimes();
    const samples = (seq: number, storedMs: number, count: number) => {
      const found: number[] = [];
      for (let at = 0; at < count; at++) found.push(times.of(1, seq, storedMs, found.at(-1)));
      return found;
    };
    expect(samples(7, 1_000, 3)).toEqual([1_000, 1_001, 1_002]);
    expect(samples(8, 1_001, 2)).toEqual([1_003, 1_004]);
    expect(samples(7, 1_000, 3)).toEqual([1_000, 1_001, 1_002]);
    expect(samples(9, 1_002, 1)).toEqual([1_005]);
  });

  it('cannot be combined with time_property', () => {
    const tags = (members: string) => `sources: { b: { mqtt: "mqtt://127.0.0.1" } }
tags: { T: { asset: 1, values: { v: { from: b, topic: a, samples: /s, ${members} } } } }\n`;
    expect(check({ 'tags.yaml': tags('at: /v, time: /t') }).lines).toEqual([]);
    expect(check({ 'tags.yaml': tags('time_property: t') }).lines).toEqual([
      expect.stringMatching(
        /time_property would assign the same time to all samples .* set time: with a JSON pointer in each sample/,
      ),
    ]);
  });
});

describe('message with a byte order mark', () => {
  it.each([
    ['\ufeff{"v":1.5}', { at: '/v' }],
    ['\ufeff1.5', {}],
    ['\ufeff[1.5]', { samples: '' }],
  ])('is read (%#)', async (message, spec) => {
    const { gate, sink } = read(spec, message);
    await gate.write([]);
    expect(sink.stored.map(({ value }) => value)).toEqual([1.5]);
  });
});
