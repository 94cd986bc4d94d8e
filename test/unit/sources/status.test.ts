import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { sourceLines, sourcesTable } from '../../../src/commands/sources/report-text.ts';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { findings } from '../../../src/ops/findings.ts';
import { missingText, type SourceReport } from '../../../src/sources/status.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { statusOf } from './sink-double.ts';

const MINUTE_MS = 60_000;

interface Facts {
  everyMs?: number;
  values?: number;
  lastAcceptedMs?: number;
  connected?: boolean;
  isPolled?: boolean;
  problem?: string;
}

/** Returns the report of a source after `afterMs`. */
async function reportOf(
  { everyMs = 1_000, values = 4, isPolled = true, lastAcceptedMs, connected = false, problem }: Facts,
  afterMs: number,
): Promise<SourceReport> {
  const clock = new ManualClock();
  const points = Array.from({ length: values }, (_, n) => {
    return { name: `FT-${n} flow`, series: n + 1, everyMs, shaping: UNSHAPED, spec: {} };
  });
  const status = statusOf('plc1', { points, isPolled, clock });
  const startMs = clock.monotonicMs();
  if (connected) status.connect();
  else status.disconnect(problem);
  if (lastAcceptedMs !== undefined) {
    await clock.advance(lastAcceptedMs);
    for (const point of points) status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
  }
  await clock.advance(startMs + afterMs - clock.monotonicMs());
  return status.report(0);
}

const silentAfter = async (minutes: number, facts: Facts) => (await reportOf(facts, minutes * MINUTE_MS)).silent;
const POLLED_ONCE_AN_HOUR = { everyMs: 60 * MINUTE_MS };
const UNSOLICITED = { everyMs: 0, connected: true };

describe('source report', () => {
  it.each<{ what: string; minutes: number; silent: boolean; facts: Facts }>([
    { what: 'a polled source without a value', minutes: 1, silent: false, facts: {} },
    { what: 'a polled source without a value', minutes: 1.1, silent: true, facts: {} },
    {
      what: 'a polled source with a value after 10 minutes',
      minutes: 11,
      silent: false,
      facts: { lastAcceptedMs: 10 * MINUTE_MS },
    },
    {
      what: 'a polled source with a value after 10 minutes',
      minutes: 12,
      silent: true,
      facts: { lastAcceptedMs: 10 * MINUTE_MS },
    },
    { what: 'a source polled once an hour', minutes: 179, silent: false, facts: POLLED_ONCE_AN_HOUR },
    { what: 'a source polled once an hour', minutes: 181, silent: true, facts: POLLED_ONCE_AN_HOUR },
    { what: 'a disconnected broker', minutes: 1, silent: false, facts: { everyMs: 0 } },
    { what: 'a disconnected broker', minutes: 2, silent: true, facts: { everyMs: 0 } },
    { what: 'a connected broker without a value', minutes: 15, silent: false, facts: UNSOLICITED },
    { what: 'a connected broker without a value', minutes: 16, silent: true, facts: UNSOLICITED },
    {
      what: 'a connected broker with a value at startup',
      minutes: 1_440,
      silent: false,
      facts: { ...UNSOLICITED, lastAcceptedMs: 0 },
    },
    {
      what: 'a connected broker with a value at startup',
      minutes: 1_441,
      silent: true,
      facts: { ...UNSOLICITED, lastAcceptedMs: 0 },
    },
    {
      what: 'a connected broker without configured values',
      minutes: 10_000,
      silent: false,
      facts: { ...UNSOLICITED, values: 0 },
    },
    {
      what: 'a disconnected broker without configured values',
      minutes: 2,
      silent: true,
      facts: { ...UNSOLICITED, values: 0, connected: false },
    },
  ])('sets silent to $silent for $what after $minutes minutes', async ({ minutes, silent, facts }) => {
    expect(await silentAfter(minutes, facts)).toBe(silent);
  });

  it('lists missing values after a grace period, and marks values from polled sources as overdue', async () => {
    expect((await reportOf({}, 19_000)).missing).toBeNull();
    expect((await reportOf({}, 21_000)).missing).toMatchObject({
      values: 4,
      first: expect.arrayContaining([{ name: 'FT-0 flow', problem: null }]),
      overdue: true,
    });
    expect((await reportOf(UNSOLICITED, 21_000)).missing?.overdue).toBe(false);
    const first = [
      { name: 'FT-1 flow', problem: null },
      { name: 'FT-2 flow', problem: '"ON" is not a number' },
    ];
    const text = 'no value yet for FT-1 flow, FT-2 flow ("ON" is not a number), and 5 more';
    expect(missingText({ values: 7, first, since_seconds: 21, overdue: true })).toBe(text);
  });

  it('becomes an error finding with its problem if the source is silent', async () => {
    const facts = { problem: 'no response within 3000 ms' };
    const reports = [
      await reportOf(facts, 120_000),
      await reportOf({ lastAcceptedMs: 119_000, connected: true }, 120_000),
    ];
    expect(findings({ sources: reports })).toEqual([
      {
        severity: 'error',
        event: 'source.silent',
        subject: 'modbus source plc1',
        sentence: 'no value since the source was opened 2 min ago: no response within 3000 ms',
        hint: null,
        command: 'tagferry sources test plc1',
      },
    ]);
  });
});

describe('source that replaces another one after a reload', () => {
  it('has the latest values of unchanged points, unless it reads another device', async () => {
    const points = [1, 2].map((series) => {
      return { name: `T ${series}`, series, everyMs: 0, shaping: UNSHAPED, spec: { topic: 'a' } };
    });
    const previous = statusOf('plant', { points });
    for (const point of points) previous.recordNumber({ point, raw: 5 }, 5, 0);
    previous.warn('sameTime', 'T 1', 3);
    const changed = [points[0]!, { ...points[1]!, spec: { topic: 'b' } }];
    const latest = (isSameDevice: boolean) => {
      const status = statusOf('plant', { points: changed });
      status.continue(previous, isSameDevice);
      expect(status.report(0).warnings).toMatchObject([{ event: 'source.same_time', count: 3 }]);
      return changed.map(({ series }) => status.latestOf(series));
    };
    expect([latest(true), latest(false)]).toEqual([
      [5, undefined],
      [undefined, undefined],
    ]);
  });
});

describe('source with several problems', () => {
  it('has a finding for each of them, and counts as one source with problems', async () => {
    const report: SourceReport = {
      ...(await reportOf({ lastAcceptedMs: 119_000, connected: true }, 120_000)),
      problem: 'the broker rejects the subscription to site/a',
      hint: 'Grant access.',
      missing: { values: 1, first: [{ name: 'T w', problem: 'no value at /w' }], since_seconds: 120, overdue: true },
      rejected: { count: 2, problem: 'site/b: it is empty', seconds_ago: 60 },
      warnings: [{ event: 'source.same_time', message: 'duplicate', count: 1, problem: 'T v', seconds_ago: 60 }],
    };
    const found = findings({ sources: [report] });
    expect(found.map(({ event, hint }) => [event, hint])).toEqual([
      ['source.partial', 'Grant access.'],
      ['source.incomplete', null],
      ['source.rejected', null],
      ['source.same_time', null],
    ]);
    const [summary, ...lines] = sourceLines([report]);
    expect(summary!.text).toBe('1 source, 1 with problems');
    expect(lines).toHaveLength(4);
    const listed = { ...report, rejected: { count: 1, problem: 'T w: no value at /w', seconds_ago: 60 } };
    expect(findings({ sources: [listed] }).map(({ event }) => event)).not.toContain('source.rejected');
  });
});

describe('source whose data yields no values', () => {
  function begin() {
    const clock = new ManualClock();
    const lines: Record<string, unknown>[] = [];
    const log = pino({ base: null, level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
    const points = [{ name: 'FT-0 flow', series: 1, everyMs: 0, shaping: UNSHAPED, spec: {} }];
    const status = statusOf('plant', { kind: 'mqtt', points, clock, log });
    status.connect();
    return { clock, lines, status, point: points[0]!, report: () => status.report(0) };
  }

  it('is unusable after 15 minutes until its next value', async () => {
    const { clock, lines, status, point, report } = begin();
    for (let minute = 0; minute < 15; minute++) {
      status.recordFailure(point, `problem ${minute}`);
      await clock.advance(MINUTE_MS);
    }
    expect(report().unusable).toBeNull();
    status.recordFailure(point, 'the payload, "ON", is not a number');
    expect(report().unusable).toEqual({
      readings: 16,
      since_seconds: 900,
      problem: 'the payload, "ON", is not a number',
    });
    const sentence =
      'no value in the latest 16 readings, latest problem: the payload, "ON", is not a number, for 15 min';
    expect(findings({ sources: [report()] })).toMatchObject([{ event: 'source.unusable', sentence }]);
    const shown = sourcesTable([report()], Number.POSITIVE_INFINITY, (text) => text);
    expect(shown).toMatch(/^plant +mqtt +unusable +15 min /m);
    expect(shown).toContain('plant: no value in the latest 16 readings, latest problem: the payload, "ON"');
    status.recordFailure(point, 'again');
    status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
    expect(report().unusable).toBeNull();
    expect(lines).toMatchObject([
      { event: 'source.unusable', source: 'plant', readings: 16, error: 'the payload, "ON", is not a number' },
      { event: 'source.unusable_over', source: 'plant' },
    ]);
  });

  it('is unusable after a minute with a hundred readings, but not after a burst', async () => {
    const { clock, status, report } = begin();
    status.reject('line 1: no number', 1_000);
    expect(report().unusable).toBeNull();
    await clock.advance(MINUTE_MS);
    status.reject('line 2: no number');
    expect(report().unusable).toMatchObject({ readings: 1_001, problem: 'line 2: no number' });
  });

  it('remains usable if a value arrives in between or no data arrives', async () => {
    const { clock, status, point, report } = begin();
    for (let minute = 0; minute < 60; minute++) {
      status.recordFailure(point, 'no number');
      if (minute % 10 === 0) status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
      await clock.advance(MINUTE_MS);
    }
    expect(report().unusable).toBeNull();
    status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
    status.recordFailure(point, 'no number');
    await clock.advance(60 * MINUTE_MS);
    expect(report().unusable).toBeNull();
  });

  it('is a warning for an hour after data was rejected, with the number of rejections and an example', async () => {
    const { clock, status, point, report } = begin();
    status.recordNumber({ point, raw: 1 }, 1, clock.monotonicMs());
    status.recordRejected('site/ft101: the payload, "ON", is not a number');
    status.recordRejected('site/ft101: the payload, "OFF", is not a number');
    await clock.advance(2 * MINUTE_MS);
    const sentence = '2 rejected, latest: site/ft101: the payload, "OFF", is not a number, 2 min ago';
    expect(findings({ sources: [report()] })).toMatchObject([
      { severity: 'warning', event: 'source.rejected', sentence, command: 'tagferry sources test plant' },
    ]);
    const shown = sourcesTable([report()], Number.POSITIVE_INFINITY, (text) => text);
    expect(shown).toContain('plant: 2 rejected, latest: site/ft101: the payload, "OFF", is not a number (2 min ago)');
    await clock.advance(60 * MINUTE_MS);
    expect(findings({ sources: [report()] })).toEqual([]);
  });
});

describe('warning about a source that lasts', () => {
  it('is one finding until it is withdrawn', async () => {
    const clock = new ManualClock();
    const status = statusOf('cell', { points: [], isPolled: false, clock });
    status.connect();
    const found = () => findings({ sources: [status.report(0)] }).map(({ event, sentence }) => [event, sentence]);
    status.warnWhile('revised', 'T flow: 10 of 100 values queued');
    await clock.advance(24 * 60 * MINUTE_MS);
    status.warnWhile('revised', 'T flow: 10 of 100 values queued');
    expect(found()).toEqual([['opcua.revised', expect.stringContaining('T flow: 10 of 100 values queued')]]);
    status.warnWhile('revised', undefined);
    expect(found()).toEqual([]);
  });
});
