import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Chart, svgOf } from '../plot.ts';
import { type Course, drainedAfter, POST_INTERVAL_MS, peak, run, SCENARIOS, staleFrom } from './fleet/scenarios.ts';

/**
 * Simulates a fleet against a platform with limits, on a virtual clock, with the agent's session, client, budget,
 * planner and sender and a store in memory. Each scenario runs twice: as shipped, and as a control without jitter and
 * without a discovered rate share.
 *
 *   node scripts/bench/fleet.ts [--agents 2000] [--only outage] [--plots docs/internals/fleet]
 */
const { values } = parseArgs({
  options: { agents: { type: 'string', default: '2000' }, only: { type: 'string' }, plots: { type: 'string' } },
});
const agents = Number(values.agents);
const CONTROL = '#c60';
const FLEET = '#069';

for (const scenario of SCENARIOS) {
  if (values.only !== undefined && values.only !== scenario.name) continue;
  const fleet = await run(scenario, agents);
  const control = await run(scenario, agents, true);
  for (const [who, course] of [
    ['fleet', fleet],
    ['control', control],
  ] as const) {
    const sorted = course.means.toSorted((a, b) => a - b);
    const at = (share: number) => Math.round(100 * sorted[Math.floor(share * (sorted.length - 1))]!) / 100;
    console.log(
      JSON.stringify({
        scenario: scenario.name,
        who,
        agents,
        peakLogins: peak(course, 'logins'),
        peakLogins5s: peak(course, 'logins', 5),
        peakPosts: peak(course, 'posts'),
        refused: course.seconds.filter(({ at: second }) => second >= 0).reduce((sum, { refused }) => sum + refused, 0),
        triedPerMinute: Math.round(100 * course.triedPerMinute) / 100,
        drainedSeconds: drainedAfter(course, scenario) ?? null,
        staleAfter2Minutes: staleFrom(course, 120),
        intervals: Math.round((10 * staleFrom(course, 120) * 1_000) / POST_INTERVAL_MS) / 10,
        postsAMinute: [at(0), at(0.05), at(0.5), at(0.95), at(1)],
      }),
    );
  }
  if (values.plots) {
    mkdirSync(values.plots, { recursive: true });
    writeFileSync(
      join(values.plots, `${scenario.name}.svg`),
      svgOf(`${agents} agents: ${scenario.title}`, charts(fleet, control)),
    );
  }
}

function charts(fleet: Course, control: Course): Chart[] {
  const both = (title: string, points: (course: Course) => [number, number][]): Chart => ({
    title,
    lines: [
      { name: 'control: no jitter, no share', colour: CONTROL, points: points(control) },
      { name: 'as shipped', colour: FLEET, points: points(fleet) },
    ],
  });
  const bySecond = (of: 'logins' | 'posts' | 'refused') => (course: Course) =>
    course.seconds.map((second): [number, number] => [second.at, second[of]]);
  const fairness = ({ means }: Course) =>
    means.toSorted((a, b) => a - b).map((mean, at): [number, number] => [(60 * 100 * at) / means.length, mean]);
  return [
    both('logins per second', bySecond('logins')),
    both('posts per second', bySecond('posts')),
    both('429 per second', bySecond('refused')),
    both('backlog values', (course) => course.samples.map(({ at, backlog }) => [at, backlog])),
    both('age of the newest value on the platform, worst asset, in seconds', (course) =>
      course.samples.map(({ at, staleSeconds }) => [at, staleSeconds]),
    ),
    both('posts per minute and agent, sorted (0 to 100%)', fairness),
  ];
}
