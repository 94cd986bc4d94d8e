import { describe, expect, it } from 'vitest';
import { svgOf } from '../../scripts/bench/fleet/plot.ts';
import { drainedAfter, peak, run, SCENARIOS, type Scenario, staleFrom } from '../../scripts/bench/fleet/scenarios.ts';

/** The simulation of scripts/bench/fleet with 200 agents: what holds for them, and that it does not for their control. */
const AGENTS = 200;
const POST_INTERVAL_S = 30;
/** The backlog is looked at so often. */
const SAMPLE_S = 5;

const scenario = (name: string, minutes: Scenario['minutes']): Scenario => ({
  ...SCENARIOS.find((one) => one.name === name)!,
  minutes,
});

describe('200 agents of a fleet', { timeout: 900_000 }, () => {
  it('come back from an outage spread: logins at most twice an even spread, fresh values within two minutes, no storm', async () => {
    const outage = scenario('outage', { before: 2, trouble: 15, after: 4 });
    const fleet = await run(outage, AGENTS);
    const control = await run(outage, AGENTS, true);
    // Waits up to 30 s: an even spread is a thirtieth of the fleet each second.
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    expect(peak(control, 'logins', 5)).toBe(AGENTS);
    expect(peak(control, 'posts')).toBeGreaterThan(2 * peak(fleet, 'posts'));
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(drainedAfter(fleet, outage)).toBeLessThanOrEqual(90);
    // However long it lasts: each agent tries some few times a minute.
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('of one user drain an hour in the time that its limit dictates, and a tenth, with live values all the while', async () => {
    const outage = scenario('outage-one-user', { before: 3, trouble: 60, after: 6 });
    const fleet = await run(outage, AGENTS);
    // Each has 240 values and four new ones a minute, and sixty go in its six posts: 240 / 56 minutes.
    expect(outage.limits(AGENTS)).toMatchObject({ perUser: 6 * AGENTS, users: 'one' });
    expect(drainedAfter(fleet, outage)).toBeLessThanOrEqual(1.1 * 60 * (240 / 56) + SAMPLE_S);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    // Of each agent one 429 a minute at most, and none once the shares are found.
    const refused = fleet.seconds.filter(({ at }) => at >= 0).map((second) => second.refused);
    expect(refused.reduce((sum, one) => sum + one, 0)).toBeLessThan(4 * AGENTS);
  });

  it('are back after a rolling restart without a wave, each time', async () => {
    const restart = scenario('restart', { before: 2, trouble: 3, after: 3 });
    const fleet = await run(restart, AGENTS);
    const control = await run(restart, AGENTS, true);
    expect(peak(control, 'posts')).toBeGreaterThan(3 * peak(fleet, 'posts'));
    expect(drainedAfter(fleet, restart)).toBeLessThanOrEqual(30);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
  });

  it('all get a token from an endpoint that gives two in three seconds, within little more than that takes', async () => {
    const slow = scenario('slow-tokens', { before: 2, trouble: 12, after: 8 });
    const fleet = await run(slow, AGENTS);
    expect(slow.limits(AGENTS).loginsPerSecond).toBeCloseTo(2 / 3);
    // The last of 200 cannot have its token before 300 s have passed; then its backlog goes.
    expect(drainedAfter(fleet, slow)).toBeLessThanOrEqual(1.2 * 300);
    expect(staleFrom(fleet, 360)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('post after a certificate that ended everywhere at once as after an outage', async () => {
    const certificate = scenario('certificate', { before: 2, trouble: 12, after: 4 });
    const fleet = await run(certificate, AGENTS);
    expect(peak(fleet, 'logins', 5)).toBeLessThanOrEqual((2 * AGENTS * 5) / 30);
    expect(drainedAfter(fleet, certificate)).toBeLessThanOrEqual(90);
    expect(staleFrom(fleet, 120)).toBeLessThanOrEqual(3 * POST_INTERVAL_S);
    expect(fleet.triedPerMinute).toBeLessThan(6);
  });

  it('who are one user, and want more than it may have, find shares, where the control runs into 429 together', async () => {
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

describe('the plot', () => {
  it('is SVG with a line for each course', () => {
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

  it('takes a day of seconds, of each some few', () => {
    const points = Array.from({ length: 90_000 }, (_, at) => [at, at % 7] as const);
    const lines = ['one', 'other'].map((name) => ({ name, colour: '#069', points }));
    expect(svgOf('a day', [{ title: 'posts a second', lines }]).length).toBeLessThan(50_000);
  });
});
