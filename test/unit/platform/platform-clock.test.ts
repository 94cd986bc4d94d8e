import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const NOW = Date.UTC(2026, 10, 21);
const DAY = 86_400_000;

let clock: ManualClock;
let platform: PlatformClock;

beforeEach(() => {
  clock = new ManualClock(NOW);
  platform = new PlatformClock(clock);
});

function answer(date: string, body: object, headers: Record<string, string> = {}, status = 200) {
  const header = (name: string) => ({ date, ...headers })[name];
  return { status, header, text: JSON.stringify(body), redact: String };
}
const dated = (ms: number, body: object = { access_token: 'a' }) => answer(new Date(ms).toUTCString(), body);

describe('platform clock', () => {
  it('is set by a token response, even if it contradicts the gateway clock, and follows the monotonic clock', async () => {
    expect(platform.nowMs()).toBeUndefined();
    expect(platform.trustedMs()).toBe(NOW);
    platform.read(dated(NOW - DAY, { access_token: 'a', created_at: (NOW - DAY) / 1000 - 1 }));
    await clock.advance(5_000);
    clock.jumpWall(3 * DAY);
    expect(platform.nowMs()).toBe(NOW - DAY + 5_000);
    expect(platform.trustedMs()).toBe(NOW - DAY + 5_000);
    expect(platform.offsetMs()).toBe(-4 * DAY);
  });

  it.each([
    ['another response', dated(NOW + DAY, { ok: true })],
    ['an error', { ...dated(NOW + DAY), status: 400 }],
    [
      'a token response whose date was changed in transit',
      dated(NOW + DAY, { access_token: 'a', created_at: NOW / 1e3 }),
    ],
    ['a token response without a valid date', answer('soon', { access_token: 'a' })],
  ])('is not set by %s', (_, response) => {
    platform.read(dated(NOW));
    platform.read(response);
    expect(platform.nowMs()).toBe(NOW);
  });
});

describe('pause after a 429', () => {
  const limited = (headers: Record<string, string>, date = '') => answer(date, {}, headers, 429);

  it('lasts as long as Retry-After requests, as seconds or as a date relative to the Date of the response', () => {
    expect(platform.closedMs(limited({ 'retry-after': '7' }))).toBe(7_000);
    // The clock of this server differs from all other clocks.
    const at = (ms: number) => new Date(NOW + 10 * DAY + ms).toUTCString();
    expect(platform.closedMs(limited({ 'retry-after': at(20_000) }, at(0)))).toBe(20_000);
  });

  it.each(['999999999', '9'.repeat(30), 'Fri, 01 Jan 2100 00:00:00 GMT'])(
    'lasts at most five minutes (%s)',
    (after) => {
      expect(platform.closedMs(limited({ 'retry-after': after }))).toBe(300_000);
    },
  );

  it.each(['0', 'Tue, 01 Jan 2019 00:00:00 GMT'])('lasts at least one second (%s)', (after) => {
    expect(platform.closedMs(limited({ 'retry-after': after }))).toBe(1_000);
  });

  it.each(['-5', '1.5', '1e3', '+7', '0x10', '7 s', '2026-11-21', 'soon', ''])(
    'ignores the invalid Retry-After “%s”',
    (after) => {
      const date = 'Sat, 21 Nov 2026 00:00:45 GMT';
      expect(platform.closedMs(limited({ 'retry-after': after }, date))).toBe(15_000);
    },
  );

  it('otherwise lasts until the next platform minute, or one minute if the platform time is unknown', () => {
    expect(platform.closedMs(limited({}))).toBe(60_000);
    expect(platform.closedMs(limited({}, new Date(NOW + 45_000).toUTCString()))).toBe(15_000);
    platform.read(dated(NOW + 20_000));
    expect(platform.closedMs(limited({}))).toBe(40_000);
  });
});
