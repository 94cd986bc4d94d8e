import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { TroubleLog } from '../../../src/sources/intake/trouble-log.ts';
import { SourceStatus } from '../../../src/sources/status.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

function begin(gatherAs?: string) {
  const clock = new ManualClock();
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null, level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { clock, lines, log, trouble: new TroubleLog(log, clock, gatherAs) };
}

describe('failure log for many topics', () => {
  it('contains two entries each for the start and end of failures, with counts for all topics', async () => {
    const { clock, lines, trouble } = begin('topics');
    const topics = Array.from({ length: 200 }, (_, i) => `site/${i}`);
    for (const topic of topics) {
      trouble.report(
        { event: 'mqtt.unreadable', source: 'broker', topic, error: 'no number at /v' },
        'no value',
        topic,
      );
    }
    await clock.advance(30_000);
    expect(lines).toMatchObject([
      { event: 'mqtt.unreadable', source: 'broker', topic: 'site/0', error: 'no number at /v' },
      { event: 'mqtt.unreadable', source: 'broker', topics: expect.arrayContaining(['site/1']), objects: 199 },
    ]);
    expect(lines[1]!.topics).toHaveLength(20);
    expect(lines[1]).not.toHaveProperty('topic');
    lines.length = 0;
    for (const topic of topics) trouble.recovered('mqtt.unreadable', { topic }, 'values again', topic);
    await clock.advance(30_000);
    expect(lines).toMatchObject([
      { event: 'mqtt.unreadable_over', topic: 'site/0' },
      { event: 'mqtt.unreadable_over', objects: 199 },
    ]);
  });

  it('contains the failures and recoveries of each topic in the order in which they occurred', async () => {
    const { clock, lines, trouble } = begin('topics');
    const fail = (topic: string) => trouble.report({ event: 'mqtt.unreadable', topic }, 'no value', topic);
    const recover = (topic: string) => trouble.recovered('mqtt.unreadable', { topic }, 'values again', topic);
    for (const topic of ['a', 'b', 'c']) fail(topic);
    recover('a');
    recover('b');
    fail('a');
    await clock.advance(5_000);
    recover('c');
    fail('b');
    recover('b');
    await clock.advance(60_000);
    expect(lines.map(({ event, topic, topics }) => [event, topic ?? topics])).toEqual([
      ['mqtt.unreadable', 'a'],
      ['mqtt.unreadable', ['c', 'b']],
      ['mqtt.unreadable_over', ['a', 'c', 'b']],
      ['mqtt.unreadable', 'a'],
    ]);
  });

  it('contains one entry per topic if entries are not combined', () => {
    const { lines, trouble } = begin();
    for (const kind of ['a', 'b', 'c']) trouble.report({ event: 'modbus.unreadable', register: kind }, 'refused', kind);
    expect(lines.map(({ register }) => register)).toEqual(['a', 'b', 'c']);
  });
});

describe('log entry about implausible timestamps', () => {
  it('contains the names of all affected values', async () => {
    const { clock, lines, log } = begin();
    const status = new SourceStatus({ name: 's', kind: 'mqtt', points: [], isPolled: false, clock, log });
    for (const name of ['T a', 'T b', 'T c']) {
      const point = { name, series: 1, everyMs: 0, shaping: UNSHAPED, spec: {} };
      status.rejectTime(point, 'before 2000');
      status.warn('timeReplaced', `${name}: before 2000`, 1, name);
    }
    for (let at = 0; at < 8; at++) status.warn('zoneMissing', 'local time');
    await clock.advance(30_000);
    for (const event of ['source.time_rejected', 'source.time_replaced']) {
      const latest = lines.findLast((line) => line.event === event);
      expect(latest).toMatchObject({ values: ['T b', 'T c'], objects: 2 });
    }
    expect(lines.findLast(({ event }) => event === 'source.zone_missing')).not.toHaveProperty('values');
  });
});

describe('log of a value with unusable readings', () => {
  it('contains no recovery before the readings were usable for a minute', async () => {
    const { clock, lines, log } = begin();
    const status = new SourceStatus({ name: 's', kind: 'mqtt', points: [], isPolled: false, clock, log });
    const point = { name: 'T a', series: 1, everyMs: 0, shaping: UNSHAPED, spec: {} };
    const readNumber = () => status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
    for (let at = 0; at < 32; at++) {
      status.reportNoMeasurement(point, '"cleaning" is not a number', 'not_a_number');
      await clock.advance(6_000);
      readNumber();
      await clock.advance(6_000);
    }
    expect(lines.map(({ event, count }) => [event, count])).toEqual(
      [1, 2, 4, 8, 16, 32].map((count) => ['source.not_a_number', count]),
    );
    lines.length = 0;
    await clock.advance(60_000);
    readNumber();
    readNumber();
    await clock.advance(10_000);
    expect(lines).toMatchObject([{ event: 'source.not_a_number_over', count: 32 }]);
  });
});
