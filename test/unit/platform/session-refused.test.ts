import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SessionBench } from './session-bench.ts';
import { untilValid } from './until-valid.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
});
afterEach(() => bench.close());

/** Returns the intervals between logins, in seconds. */
function gapsS(askedMs: readonly number[]): number[] {
  return askedMs.slice(1).map((at, index) => Math.round((at - askedMs[index]!) / 1000));
}

describe('rejected sign-in', () => {
  it('is retried after 5 s, with delays doubling to 60 s, and to 1 h after 15 minutes', async () => {
    const asked: number[] = [];
    bench.server.password = 'another';
    bench.server.faults.push((seen) => {
      if (seen.path === '/oauth/token') asked.push(bench.clock.monotonicMs());
      return false;
    });
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.pass(6 * 3_600_000, 1_000);
    const gaps = gapsS(asked);
    expect(gaps.slice(0, 5)).toEqual([5, 10, 20, 40, 60]);
    const slow = gaps.findIndex((gap) => gap > 61);
    const secondsBefore = gaps.slice(0, slow).reduce((sum, gap) => sum + gap, 0);
    expect(secondsBefore).toBeGreaterThanOrEqual(900);
    expect(secondsBefore).toBeLessThan(961);
    expect(gaps.slice(slow, slow + 6)).toEqual([120, 240, 480, 960, 1920, 3600]);
    expect(gaps.at(-1)).toBe(3600);
  });

  it('is logged immediately with a hint, then once per repeat interval', async () => {
    bench.server.password = 'another';
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.pass(3_600_000, 1_000);
    const said = bench.lines.filter((line) => line.event === 'session.refused');
    expect(said).toHaveLength(1);
    expect(said[0]).toMatchObject({ level: 50, code: 'platform.sign_in_refused' });
    expect(said[0]!.hint).toContain('TECHNICAL_PASSWORD');
    const summaries = bench.lines.filter((line) => line.event === 'session.still_failing');
    expect(summaries[0]).toMatchObject({ attempts: 2, failingForMs: 5_000 });
    // At most six doublings, then one line every ten minutes.
    expect(summaries.length).toBeLessThanOrEqual(12);
  });

  it('is retried immediately with the current credentials by retryNow and renewNow', async () => {
    bench.credentials.user.password = 'wrong';
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.pass(100_000, 1_000);
    await expect(bench.session.renewNow()).rejects.toMatchObject({ code: 'platform.sign_in_refused' });
    bench.credentials.user.password = bench.server.password;
    bench.session.retryNow();
    await untilValid(bench.session);
    expect(bench.session.snapshot()).toMatchObject({
      state: 'valid',
      usable: true,
      last_error: undefined,
      failures: 0,
    });
    const call = { method: 'GET', path: '/v1/assets', kind: 'other' } as const;
    expect((await bench.client.request(call)).status).toBe(200);
  });

  it('makes calls fail immediately with a retryable error and a hint about the cause', async () => {
    bench.server.password = 'another';
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    const call = bench.client.request({ method: 'GET', path: '/v1/assets', kind: 'other' });
    const hint = expect.stringContaining('TECHNICAL_PASSWORD');
    await expect(call).rejects.toMatchObject({ code: 'platform.no_session', retryable: true, hint });
  });
});
