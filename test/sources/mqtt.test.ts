import { describe, expect, it } from 'vitest';
import { ValueColumns } from '../../src/buffer/value-columns.ts';
import { silentLogger } from '../../src/logger.ts';
import { GatheredAppend } from '../../src/sources/gathered-append.ts';
import { MqttSource, readPayload, type TopicSubscriber } from '../../src/sources/mqtt.ts';
import { pointsOf } from '../../src/sources/points.ts';
import { makeDoor, storeFault, tagOf, until } from './sink-double.ts';

type Handler = Parameters<TopicSubscriber['subscribe']>[1];

const TAGS = new Map([
  [
    'FT-101',
    tagOf('FT-101', 881, [
      { key: 'temperature', from: { kind: 'mqtt', source: 'broker', topic: 'site/ft101', at: '/temp' } },
      { key: 'flow', from: { kind: 'mqtt', source: 'broker', topic: 'site/ft101', at: '/data/0/flow' } },
      { key: 'level', from: { kind: 'mqtt', source: 'broker', topic: 'site/level' } },
      { key: 'other', from: { kind: 'mqtt', source: 'elsewhere', topic: 'site/level' } },
    ]),
  ],
]);

function start() {
  const door = makeDoor(TAGS);
  const handlers = new Map<string, Handler>();
  const broker: TopicSubscriber = {
    subscribe(topic, handler) {
      handlers.set(topic, handler);
      return () => handlers.delete(topic);
    },
  };
  const points = pointsOf(TAGS, 'broker', 'mqtt', door.intake);
  const source = new MqttSource({
    name: 'broker',
    points,
    broker,
    sink: door.sink,
    clock: door.clock,
    log: silentLogger(),
  });
  source.start();
  const publish = (topic: string, payload: string, retained = false) =>
    handlers.get(topic)!(Buffer.from(payload), retained);
  const stored = () => door.sink.stored.map(({ address, value }) => `${address} ${value}`);
  return { ...door, source, handlers, publish, stored };
}

describe('an MQTT source', () => {
  it('subscribes once to each of its topics and takes every value of a message', async () => {
    const { handlers, publish, stored, clock, sink } = start();
    expect([...handlers.keys()].sort()).toEqual(['site/ft101', 'site/level']);
    await publish('site/ft101', '{"temp":21.5,"data":[{"flow":"12.25"}]}');
    await publish('site/level', ' -3.5e1\n');
    expect(stored()).toEqual(['881//temperature/ 21.5', '881//flow/ 12.25', '881//level/ -35']);
    expect(sink.stored[0]).toMatchObject({ timeMs: clock.wallMs(), stampedHere: true });
  });

  it('does not acknowledge before the disk, and writes what came meanwhile in one append', async () => {
    const { sink, publish } = start();
    sink.holds = true;
    let acknowledged = 0;
    const all = Array.from({ length: 50 }, (_, at) => publish('site/level', String(at)).then(() => acknowledged++));
    await until(() => sink.waiting === 1);
    expect(acknowledged).toBe(0);
    sink.commit();
    await until(() => sink.waiting === 1);
    expect([acknowledged, sink.appends]).toEqual([1, 2]);
    sink.commit();
    await Promise.all(all);
    expect(sink.stored.map((value) => value.value)).toEqual(Array.from({ length: 50 }, (_, at) => at));
  });

  it('offers values again while the store refuses, and acknowledges once', async () => {
    const { sink, clock, publish, stored } = start();
    sink.fault = storeFault('buffer.full', 2_000);
    const message = publish('site/level', '7');
    await clock.advance(5_000);
    expect(sink.appends).toBeGreaterThan(1);
    sink.fault = undefined;
    await clock.advance(2_000);
    await message;
    expect(stored()).toEqual(['881//level/ 7']);
  });

  it('leaves a message unacknowledged when it stops before the disk has it', async () => {
    const { sink, source, handlers, publish } = start();
    sink.fault = storeFault('store.unwritable');
    const message = publish('site/level', '7');
    const outcome = expect(message).rejects.toThrow('stopped');
    await until(() => sink.appends === 1);
    await source.stop();
    await outcome;
    expect(handlers.size).toBe(0);
  });

  it('acknowledges what cannot be read, because it would come again, and counts it', async () => {
    const { source, publish, stored } = start();
    for (const payload of ['', 'n/a', '{}', 'NaN', 'null']) await publish('site/level', payload);
    await publish('site/ft101', '{"temp":');
    await publish('site/ft101', '{"data":[]}');
    expect([source.unreadable, stored()]).toEqual([7, []]);
    await publish('site/ft101', '{"data":[{"flow":1}]}');
    expect(stored()).toEqual(['881//flow/ 1']);
  });

  it('takes a retained message once, not again with each connection', async () => {
    const { publish, stored } = start();
    for (let round = 0; round < 3; round++) await publish('site/level', '5', true);
    await publish('site/level', '6', true);
    expect(stored()).toEqual(['881//level/ 5', '881//level/ 6']);
  });
});

describe('gathered appends', () => {
  function gather(mostWaiting?: number) {
    const door = makeDoor(TAGS);
    const series = door.catalogue.idOf(1, 'k', undefined, undefined);
    const append = new GatheredAppend({
      name: 'broker',
      sink: door.sink,
      clock: door.clock,
      log: silentLogger(),
      ...(mostWaiting ? { mostWaiting } : {}),
    });
    const add = (value: number) => {
      const columns = new ValueColumns();
      columns.add(series, 0, value, 0);
      return append.add(columns);
    };
    return { ...door, append, add };
  }

  it('take a value that comes in the very moment when the last one is acknowledged', async () => {
    const { add, sink } = gather();
    for (let value = 0; value < 20; value++) await add(value);
    expect(sink.stored.map((each) => each.value)).toEqual(Array.from({ length: 20 }, (_, at) => at));
  });

  it('refuse and count what is beyond the bound, and take more when the disk has caught up', async () => {
    const { add, append, sink } = gather(3);
    sink.holds = true;
    const first = add(0);
    await until(() => sink.waiting === 1);
    const waiting = [add(1), add(2), add(3)];
    await expect(add(4)).rejects.toThrow('too many');
    expect(append.dropped).toBe(1);
    sink.holds = false;
    sink.commit();
    await Promise.all([first, ...waiting]);
    await add(5);
    expect(sink.stored.map((each) => each.value)).toEqual([0, 1, 2, 3, 5]);
  });
});

describe('readPayload', () => {
  it.each([
    ['12.5', undefined, 12.5],
    ['"12.5"', undefined, 12.5],
    ['true', undefined, 1],
    ['{"a/b":{"~":[1,2]}}', '/a~1b/~0/1', 2],
    ['{"on":false}', '/on', 0],
    ['5', '', 5],
  ])('reads %s at %s', (text, at, value) => {
    expect(readPayload(text, at)).toBe(value);
  });

  it.each([
    ['{"a":{}}', '/a'],
    ['{"a":1}', '/a/b'],
    ['{"a":1}', '/toString'],
    ['{"a":1e999}', '/a'],
    ['0x10', undefined],
    ['1,5', undefined],
  ])('finds no number in %s at %s', (text, at) => {
    expect(() => readPayload(text, at)).toThrow(expect.objectContaining({ code: 'mqtt.no_number' }));
  });
});
