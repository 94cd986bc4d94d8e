import { describe, expect, it } from 'vitest';
import { drainedAfter, peak, run, SCENARIOS, type Scenario, staleFrom } from '../../scripts/bench/fleet/scenarios.ts';
import { svgOf } from '../../scripts/plot.ts';

/** Simulation of scripts/bench/fleet with 200 agents, compared with a control without jitter and shares. */
const AGENTS = 200;
const POST_INTERVAL_S = 30;
/** Interval at which the backlog is sampled, in seconds. */
const SAMPLE_S = 5;

const scenario = (name: string, minutes: Scenario['minutes']): Scenario => ({
  ...SCENARIOS.find((one) => one.name === name)!,
  minutes,
});

describe('fleet of 200 agents', { timeout: 900_000 }, () => {
  it('recovers from an outage with a peak login rate of at most twice an even spread, and current values within two minutes', async () => {
    const outage = scenario('outage', { before: 2, trouble: 15, after: 4 });
    const fleet = await run(outage, AGENTS);
    const control = await run(outage, AGENTS, true);
    // If waits of up to 30 s are evenly distributed, a thirtieth of the fleet retries per second.
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    expect(peak(control, 'logins', 5)).toBe(AGENTS);
    expect(peak(control, 'posts')).toBeGreaterThan(2 * peak(fleet, 'posts'));
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(drainedAfter(fleet, outage)).toBeLessThanOrEqual(90);
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('drains a one-hour backlog within 110 % of the minimum time, with live values on time', async () => {
    const outage = scenario('outage-one-user', { before: 3, trouble: 60, after: 6 });
    const fleet = await run(outage, AGENTS);
    // Each agent has 240 values and four new ones per minute, and posts sixty per minute: 240 / 56 minutes.
    expect(outage.limits(AGENTS)).toMatchObject({ perUser: 6 * AGENTS, users: 'one' });
    expect(drainedAfter(fleet, outage)).toBeLessThanOrEqual(1.1 * 60 * (240 / 56) + SAMPLE_S);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    // At most one 429 per agent per minute, and none once the shares have converged.
    const refused = fleet.seconds.filter(({ at }) => at >= 0).map((second) => second.refused);
    expect(refused.reduce((sum, one) => sum + one, 0)).toBeLessThan(4 * AGENTS);
  });

  it('recovers from a rolling restart without a load peak', async () => {
    const restart = scenario('restart', { before: 2, trouble: 3, after: 3 });
    const fleet = await run(restart, AGENTS);
    const control = await run(restart, AGENTS, true);
    expect(peak(control, 'posts')).toBeGreaterThan(3 * peak(fleet, 'posts'));
    expect(drainedAfter(fleet, restart)).toBeLessThanOrEqual(30);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
  });

  it('obtains tokens from an endpoint limited to two per three seconds in nearly the minimum time', async () => {
    const slow = scenario('slow-tokens', { before: 2, trouble: 12, after: 8 });
    const fleet = await run(slow, AGENTS);
    expect(slow.limits(AGENTS).loginsPerSecond).toBeCloseTo(2 / 3);
    // The 200th token is issued after 300 s.
    expect(drainedAfter(fleet, slow)).toBeLessThanOrEqual(1.2 * 300);
    expect(staleFrom(fleet, 360)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('recovers from a certificate that expired on all gateways at once', async () => {
    const certificate = scenario('certificate', { before: 2, trouble: 12, after: 4 });
    const fleet = await run(certificate, AGENTS);
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    expect(drainedAfter(fleet, certificate)).toBeLessThanOrEqual(90);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('shares one user’s limit, while the control group keeps receiving 429', async () => {
    const ordinary = scenario('ordinary', { before: 0, trouble: 0, after: 15 });
    const tight: Scenario = {
      ...ordinary,
      limits: (agents) => ({ ...ordinary.limits(agents), perUser: 1.2 * agents }),
    };
    const fleet = await run(tight, AGENTS);
    const control = await run(tight, AGENTS, true);
    const refused = ({ seconds }: typeof fleet) =>
      seconds.filter(({ at }) => at > 600).reduce((sum, one) => sum + one.refused, 0);
    expect(refused(control)).toBeGreaterThan(1.5 * refused(fleet));
    expect(peak(control, 'refused')).toBeGreaterThan(3 * peak(fleet, 'refused'));
  });
});

describe('fleet plot', () => {
  it('is an SVG with one line per series', () => {
    const lines = ['one', 'other <control>'].map((name) => ({
      name,
      colour: '#069',
      points: [
        [-60, 1],
        [0, 5],
        [60, 2],
      ] as const,
    }));
    const svg = svgOf('fleet & control', [{ title: 'logins a second', lines }]);
    expect(svg.match(/<polyline/g)).toHaveLength(2);
    expect(svg).toContain('fleet &amp; control');
    expect(svg).toContain('other &lt;control>');
  });

  it('reduces one day of samples to a few points', () => {
    const points = Array.from({ length: 90_000 }, (_, at) => [at, at % 7] as const);
    const lines = ['one', 'other'].map((name) => ({ name, colour: '#069', points }));
    expect(svgOf('a day', [{ title: 'posts a second', lines }]).length).toBeLessThan(50_000);
  });
});
