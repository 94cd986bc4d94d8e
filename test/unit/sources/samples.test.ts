import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { MQTT_TOPICS } from '../../../src/broker/topic-filters.ts';
import { StreamTimes } from '../../../src/sources/intake/stamps.ts';
import { MessageReader } from '../../../src/sources/messages/message-reader.ts';
import { type MessageValue, readMessage } from '../../../src/sources/messages/payload.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { check } from '../config/folder.ts';
import { makeIntakeBench, originOf, tagOf } from './sink-double.ts';

const AT = { topic: 'a', template: 'a' };

function read(
  spec: Omit<MessageValue, 'topic' | 'template'>,
  payload: string,
  timeOf?: (series: number) => number,
  onFailure: 'skip' | 'bad' = 'skip',
) {
  const value = { key: 'v', from: originOf<MessageValue>('mqtt', 's', { ...AT, ...spec }, { onFailure }) };
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
    const problem = 'T v: sample 3: the value at /v is null, not a number';
    expect(gate.status.report(0)).toMatchObject({ errors: 1, rejected: { count: 1, problem } });
    const { outcome: other } = read({ samples: '/s', at: '/v' }, '{"s":[{"w":2}]}');
    expect(other.problem).toBe('sample 1: no value at /v');
  });

  it('are counted individually if they are unreadable', () => {
    const { gate } = read({ samples: '/s', at: '/v' }, '{"s":[{"v":1},{"v":null},{"v":"x"},{"v":{}},{"v":2}]}');
    expect(gate.status.report(0)).toMatchObject({
      errors: 3,
      rejected: { count: 3, problem: 'T v: sample 4: the value at /v is an object, not a number' },
    });
  });

  it('turn bad at their own time if they are unreadable', async () => {
    const spec = { samples: '/s', at: '/v', time: '/t' };
    const message = '{"s":[{"v":1,"t":1790000000000},{"v":null,"t":1790000000100},{"v":2,"t":1790000000200}]}';
    const { gate, sink } = read(spec, message, undefined, 'bad');
    await gate.write([]);
    expect(sink.stored.map(({ value, timeMs, status }) => [value, timeMs - 1_790_000_000_000, status > 0])).toEqual([
      [1, 0, false],
      [1, 100, true],
      [2, 200, false],
    ]);
  });

  it('are limited to 50,000 for all values of a message, and use one reading for absent members', () => {
    const payload = Buffer.from(`{"l":[${'{},'.repeat(30_000)}{}]}`);
    const values = ['a', 'b', 'c'].map((key) => ({
      key,
      from: originOf<MessageValue>('mqtt', 's', { ...AT, samples: '/l', at: `/${key}` }),
    }));
    const tags = new Map([['T', tagOf('T', 1, values)]]);
    const points = pointsOf<MessageValue>(tags, 's', makeIntakeBench(tags).intake);
    const { readings, problem } = readMessage({ payload }, points, { arrivalMs: 0 });
    expect(problem).toBe('the message has more than 50000 samples');
    expect(readings).toMatchObject([
      { absent: 'sample 1: no value at /a' },
      { failure: problem },
      { failure: problem },
    ]);
  });

  it.each([
    ['{"s":5}', 'the value at /s is not a list'],
    ['{}', 'the value at /s is not a list'],
    [`{"s":[${'1,'.repeat(50_000)}1]}`, 'the message has more than 50000 samples'],
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

describe('message with several values', () => {
  function plant() {
    const values = ['a', 'b'].map((key) => ({
      key,
      from: originOf<MessageValue>('mqtt', 's', { ...AT, at: `/${key}`, time: '/t' }, { onFailure: 'bad' }),
    }));
    const tags = new Map([['T', tagOf('T', 1, values)]]);
    const bench = makeIntakeBench(tags);
    const points = pointsOf<MessageValue>(tags, 's', bench.intake);
    const gate = bench.gateOf('s');
    const send = (text: string) => {
      const outcome = readMessage({ payload: Buffer.from(text) }, points, { arrivalMs: bench.clock.wallMs() });
      gate.record(outcome.readings);
      return outcome.problem;
    };
    const stored = () => bench.sink.stored.map(({ value, timeMs, status }) => [value, timeMs, status > 0]);
    const reader = new MessageReader(
      {
        source: { kind: 'mqtt', name: 's', everyMs: 0, timeFrom: 'source', spec: {} },
        points,
        gate,
        status: gate.status,
        clock: bench.clock,
        log: silentLogger(),
      } as unknown as ConstructorParameters<typeof MessageReader>[0],
      MQTT_TOPICS,
    );
    const receive = (text: string) => reader.write('a', { payload: Buffer.from(text) }, points);
    return { gate, send, stored, receive };
  }

  it('is rejected without any of them, unless earlier messages contained all of them', async () => {
    const { gate, receive } = plant();
    await receive('{"a":1,"t":1790000000000}');
    await receive('{"battery":90}');
    expect(gate.status.report(0).rejected).toMatchObject({ count: 1, problem: 'a: no value at /b' });
    await receive('{"b":2,"t":1790000000100}');
    await receive('{"battery":89}');
    expect(gate.status.report(0)).toMatchObject({ errors: 1, rejected: { count: 1 } });
    await receive('null');
    expect(gate.status.report(0)).toMatchObject({ errors: 1, rejected: { count: 1 } });
    await receive('low battery');
    expect(gate.status.report(0).rejected).toMatchObject({ count: 2, problem: 'a: the payload is not JSON' });
  });

  it('counts a present member that is unreadable, and turns its value bad at the time of the message', async () => {
    const { gate, send, stored } = plant();
    expect(send('{"a":1,"b":2,"t":1790000000000}')).toBeUndefined();
    expect(send('{"a":3,"b":null,"t":1790000000100}')).toBeUndefined();
    await gate.write([]);
    expect(stored()).toEqual([
      [1, 1_790_000_000_000, false],
      [2, 1_790_000_000_000, false],
      [3, 1_790_000_000_100, false],
      [2, 1_790_000_000_100, true],
    ]);
    const problem = 'T b: the value at /b is null, not a number';
    expect(gate.status.report(0)).toMatchObject({ errors: 1, rejected: { count: 1, problem } });
  });

  it('ignores absent members', async () => {
    const { gate, send, stored } = plant();
    send('{"a":1,"b":2,"t":1790000000000}');
    expect(send('{"a":3,"t":1790000000100}')).toBeUndefined();
    expect(send('{"t":1790000000200}')).toBe('no value at /b');
    await gate.write([]);
    expect(stored().map(([value, , isBad]) => [value, isBad])).toEqual([
      [1, false],
      [2, false],
      [3, false],
    ]);
    expect(gate.status.report(0)).toMatchObject({ errors: 0, rejected: null });
  });
});
