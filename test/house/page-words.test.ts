import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lastsSeconds } from '../../src/ops/rates.ts';
import type { StatusReport } from '../../src/ops/status-report.ts';
import { failuresOf } from '../../src/page/failure.ts';
import { eventLinks, valueLinks } from '../../src/page/flow.ts';
import { timeIn } from '../../src/page/gateway.ts';
import { numberText, readingText } from '../../src/page/reading-text.ts';
import { waitsOf } from '../../src/page/waits.ts';
import { CALM_STATUS } from '../unit/doubles/calm-status.ts';

const status = (more: object = {}) => ({ ...CALM_STATUS, ...more }) as StatusReport;
const away = (code: string) => ({
  away: { since_seconds: 300, code, message: 'its words', attempts: 3, next_try_in_seconds: 20 },
  resting: null,
  waiting_series: [],
});

describe('data path diagram', () => {
  it('labels each state with a distinct word', () => {
    const posts = (more: object) => {
      const { kind, words } = valueLinks(status(more))[1]!;
      return [kind, words];
    };
    expect(posts({})).toEqual(['flows', undefined]);
    expect(posts({ state: 'platform unavailable', uplink: away('platform.dns') })).toEqual([
      'away',
      'unavailable for 5 min',
    ]);
    expect(posts({ state: 'quota used up', uplink: away('402') })).toEqual(['refused', 'quota used up for 5 min']);
    expect(posts({ session: { state: 'refused', usable: false } })).toEqual(['away', 'signed out']);
    const held = { values_wait: true, next_probe_in_seconds: 60 };
    expect(posts({ holds: [held, held] })).toEqual(['held', '2 objects held']);
    const unused = { ...held, values_wait: false };
    expect(posts({ holds: [unused] })).toEqual(['flows', undefined]);
    expect(waitsOf(status({ holds: [unused] }))).toEqual([]);
    expect(valueLinks(status({ buffer: { ...CALM_STATUS.buffer, problems: ['the disk is full'] } }))[0]).toMatchObject({
      kind: 'refused',
      why: 'the disk is full',
    });
  });

  it('shows a webhook that is off, unregistered, or pending', () => {
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

describe('problem list', () => {
  it('is empty if there are no problems', () => {
    expect(failuresOf(status())).toEqual([]);
    expect(waitsOf(status())).toEqual([]);
  });

  it('distinguishes an unavailable platform from a rejected sign-in, even if the disk is full', () => {
    const problems = { state: 'rejecting values', buffer: { ...CALM_STATUS.buffer, problems: ['the disk is full'] } };
    const withoutSession = (code: string) =>
      status({ ...problems, session: { state: 'none', usable: false, last_error: { code, message: 'its words' } } });
    const titles = (code: string) => failuresOf(withoutSession(code)).map(({ title }) => title);
    expect(titles('platform.connection_refused')).toContain('No session, because the platform is unavailable');
    expect(titles('platform.sign_in_refused')).toContain('Signed out');
    expect(valueLinks(withoutSession('platform.connection_refused'))[1]).toMatchObject({ words: 'unavailable' });
    expect(valueLinks(withoutSession('platform.sign_in_refused'))[1]).toMatchObject({ words: 'signed out' });
  });

  it('contains the original messages and a command that works with any tag name', () => {
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
    const refused = failuresOf(status({ state: 'posts rejected', uplink: away('401') }));
    expect(refused[0]).toMatchObject({ words: 'its words', command: 'tagferry session renew' });
  });

  it('includes the conditions for which the agent is waiting', () => {
    expect(waitsOf(status({ uplink: away('platform.dns') }))).toEqual([
      { what: 'platform', until: 'next attempt in 20 s' },
    ]);
  });
});

describe('times and numbers', () => {
  it('use gateway time across clock changes and for time zones unknown to the browser', () => {
    const berlin = { name: 'Europe/Berlin', offsetMinutes: 60 };
    expect(timeIn(berlin, Date.UTC(2026, 6, 1, 12))).toBe('2026-07-01 14:00:00 +02:00');
    expect(timeIn(berlin, Date.UTC(2026, 11, 1, 12))).toBe('2026-12-01 13:00:00 +01:00');
    expect(timeIn({ name: 'Moon/Base', offsetMinutes: -210 }, Date.UTC(2026, 6, 1, 12))).toBe(
      '2026-07-01 08:30:00 -03:30',
    );
    expect(timeIn({ name: 'UTC', offsetMinutes: 0 }, 0)).toBe('1970-01-01 00:00:00 +00:00');
  });

  it('have significant digits and unit symbols', () => {
    expect([1, 0.1 + 0.2, 1234.5678, 1e-9, 1e12].map(numberText)).toEqual([
      '1',
      '0.3',
      '1234.57',
      '1e-9',
      '1000000000000',
    ]);
    expect(readingText({ value: 20.5, unit: 'degree_celsius' })).toBe('20.5 °C');
    expect(readingText({ value: 42, unit: 'cubic_meter_per_hour' })).toBe('42 m³/h');
    expect(readingText({ value: 7, unit: 'turns_per_minute' })).toBe('7 turns/min');
    expect(readingText({ value: 3, unit: '12' })).toBe('3 (unit 12)');
    expect(readingText({ value: null, unit: 'bar' })).toBe('–');
  });

  it('predict when the buffer limit or disk capacity is reached, only while the buffer grows', () => {
    const grows = { ingestedPerMinute: 600, deliveredPerMinute: 0 };
    const room = { values: 0, bytes: 0, maxBytes: 48_000, freeBytes: 1e9 };
    expect(lastsSeconds(room, grows)).toBe(600);
    expect(lastsSeconds({ ...room, maxBytes: 0, freeBytes: 4_800 }, grows)).toBe(60);
    expect(lastsSeconds({ ...room, values: 200_000, bytes: 400_000, maxBytes: 1_400_000 }, grows)).toBe(50_000);
    expect(lastsSeconds(room, { ingestedPerMinute: 5, deliveredPerMinute: 5 })).toBeNull();
  });
});

it('browser files total at most 120 kB compressed', () => {
  const folder = join(import.meta.dirname, '../../dist/page');
  const bytes = readdirSync(folder)
    .filter((name) => name.endsWith('.gz'))
    .map((name) => statSync(join(folder, name)).size);
  expect(bytes.length).toBeGreaterThanOrEqual(4);
  expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(120_000);
});
