import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lastsSeconds } from '../../src/ops/rates.ts';
import type { StatusReport } from '../../src/ops/status-report.ts';
import { failuresOf } from '../../src/page/gateway/failure.ts';
import { eventLinks, valueLinks } from '../../src/page/gateway/flow.ts';
import { timeIn } from '../../src/page/gateway/gateway-time.ts';
import { numberText, readingText } from '../../src/page/gateway/reading-text.ts';
import { waitsOf } from '../../src/page/gateway/waits.ts';
import { CALM_STATUS } from '../doubles/calm-status.ts';

const status = (more: object = {}) => ({ ...CALM_STATUS, ...more }) as StatusReport;
const away = (code: string) => ({
  away: { since_seconds: 300, code, message: 'its words', attempts: 3, next_try_in_seconds: 20 },
  resting: null,
  waiting_series: [],
});

describe('the picture of the way', () => {
  it('tells each state by a word of its own', () => {
    const posts = (more: object) => {
      const { kind, words } = valueLinks(status(more))[1]!;
      return [kind, words];
    };
    expect(posts({})).toEqual(['flows', undefined]);
    expect(posts({ state: 'platform away', uplink: away('platform.dns') })).toEqual(['away', 'away since 5 min']);
    expect(posts({ state: 'quota spent', uplink: away('402') })).toEqual(['refused', 'quota spent since 5 min']);
    expect(posts({ session: { state: 'refused', usable: false } })).toEqual(['away', 'signed out']);
    expect(posts({ holds: [{}, {}] })).toEqual(['held', '2 holds']);
    expect(valueLinks(status({ buffer: { ...CALM_STATUS.buffer, problems: ['the disk is full'] } }))[0]).toMatchObject({
      kind: 'refused',
      why: 'the disk is full',
    });
  });

  it('tells of a webhook that is off, not registered, or waits', () => {
    const inbox = (listener: object) => eventLinks(status({ listener: { ...CALM_STATUS.listener, ...listener } }))[0]!;
    expect(inbox({}).kind).toBe('waits');
    expect(inbox({ webhook: undefined }).kind).toBe('off');
    expect(inbox({ registered: undefined }).words).toBe('not registered');
    expect(inbox({ secret_known: false }).words).toBe('secret unknown');
    expect(inbox({ disabled_by: 'platform' }).words).toBe('disabled');
    const disabled = failuresOf(status({ listener: { ...CALM_STATUS.listener, disabled_by: 'command' } }));
    expect(disabled).toMatchObject([{ id: 'webhook', command: 'tagferry webhook enable' }]);
  });
});

describe('what is wrong', () => {
  it('is nothing on a calm day', () => {
    expect(failuresOf(status())).toEqual([]);
    expect(waitsOf(status())).toEqual([]);
  });

  it('has the words that were said, and a command that is one, whatever a tag is called', () => {
    const name = "x'; rm -rf / #";
    const series = {
      series: 1,
      asset: 5,
      key: 'flow',
      tag: name,
      status: 400,
      message: 'unit unknown',
      next_try_in_seconds: 9,
    };
    const [found] = failuresOf(status({ uplink: { ...CALM_STATUS.uplink, waiting_series: [series] } }));
    expect(found).toMatchObject({
      words: 'unit unknown',
      command: `tagferry buffer requeue --tag 'x'\\''; rm -rf / #'`,
    });
    const refused = failuresOf(status({ state: 'posts refused', uplink: away('401') }));
    expect(refused[0]).toMatchObject({ words: 'its words', command: 'tagferry session renew' });
  });

  it('is waited for by name', () => {
    expect(waitsOf(status({ uplink: away('platform.dns') }))).toEqual([
      { what: 'the platform', until: 'tried again in 20 s' },
    ]);
  });
});

describe('times and numbers', () => {
  it('are those of the gateway, through a change of its clock and without a zone that the browser knows', () => {
    const berlin = { name: 'Europe/Berlin', offsetMinutes: 60 };
    expect(timeIn(berlin, Date.UTC(2026, 6, 1, 12))).toBe('2026-07-01 14:00:00 +02:00');
    expect(timeIn(berlin, Date.UTC(2026, 11, 1, 12))).toBe('2026-12-01 13:00:00 +01:00');
    expect(timeIn({ name: 'Moon/Base', offsetMinutes: -210 }, Date.UTC(2026, 6, 1, 12))).toBe(
      '2026-07-01 08:30:00 -03:30',
    );
    expect(timeIn({ name: 'UTC', offsetMinutes: 0 }, 0)).toBe('1970-01-01 00:00:00 +00:00');
  });

  it('have as many digits as say something, and their unit', () => {
    expect([1, 0.1 + 0.2, 1234.5678, 1e-9, 1e12].map(numberText)).toEqual([
      '1',
      '0.3',
      '1234.57',
      '1e-9',
      '1000000000000',
    ]);
    expect(readingText({ value: 20.5, unit: 'degree_celsius' })).toBe('20.5 degree celsius');
    expect(readingText({ value: 3, unit: '12' })).toBe('3 (unit 12)');
    expect(readingText({ value: null, unit: 'bar' })).toBe('–');
  });

  it('say how long the space lasts: by what is nearer, bound or disk, and only while the buffer grows', () => {
    const grows = { ingestedPerMinute: 600, deliveredPerMinute: 0 };
    const room = { values: 0, bytes: 0, maxBytes: 48_000, freeBytes: 1e9 };
    expect(lastsSeconds(room, grows)).toBe(600);
    expect(lastsSeconds({ ...room, maxBytes: 0, freeBytes: 4_800 }, grows)).toBe(60);
    expect(lastsSeconds({ ...room, values: 200_000, bytes: 400_000, maxBytes: 1_400_000 }, grows)).toBe(50_000);
    expect(lastsSeconds(room, { ingestedPerMinute: 5, deliveredPerMinute: 5 })).toBeNull();
  });
});

it('everything that the browser gets is at most 120 kB, compressed', () => {
  const folder = join(import.meta.dirname, '../../dist/page/gateway');
  const bytes = readdirSync(folder)
    .filter((name) => name.endsWith('.gz'))
    .map((name) => statSync(join(folder, name)).size);
  expect(bytes.length).toBeGreaterThanOrEqual(4);
  expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(120_000);
});
