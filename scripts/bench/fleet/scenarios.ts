import { FleetAgent } from './agent.ts';
import { FleetPlatform, type PlatformLimits } from './platform.ts';
import { VirtualTime } from './virtual-time.ts';

export interface Scenario {
  name: string;
  title: string;
  /** Minutes before, during and after the disturbance. */
  minutes: { before: number; trouble: number; after: number };
  limits(agents: number): PlatformLimits;
  /** Kind of disturbance. */
  trouble: 'refused' | 'tls' | 'rolling' | 'slow-tokens' | 'none';
}

const EACH = (): PlatformLimits => ({ perUser: 500, users: 'each', loginsPerSecond: 1_000 });
/** Limit that allows the live values of all agents, and half as many backlog values. */
const ONE = (agents: number): PlatformLimits => ({ ...EACH(), perUser: 6 * agents, users: 'one' });

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'outage',
    title: 'unavailable for an hour, one user per agent',
    minutes: { before: 3, trouble: 60, after: 10 },
    limits: EACH,
    trouble: 'refused',
  },
  {
    name: 'outage-one-user',
    title: 'unavailable for an hour, one user for all agents',
    minutes: { before: 20, trouble: 60, after: 60 },
    limits: ONE,
    trouble: 'refused',
  },
  {
    name: 'restart',
    title: 'rolling restart: unavailable six times for ten seconds',
    minutes: { before: 3, trouble: 6, after: 5 },
    limits: EACH,
    trouble: 'rolling',
  },
  {
    name: 'slow-tokens',
    title: 'unavailable for twenty minutes, then a slow token endpoint',
    minutes: { before: 3, trouble: 20, after: 15 },
    limits: (agents) => ({ ...EACH(), loginsPerSecond: agents / 300 }),
    trouble: 'slow-tokens',
  },
  {
    name: 'certificate',
    title: 'expired certificate for half an hour',
    minutes: { before: 3, trouble: 30, after: 10 },
    limits: EACH,
    trouble: 'tls',
  },
  {
    name: 'ordinary',
    title: 'normal operation, one user for all agents',
    minutes: { before: 3, trouble: 0, after: 1_440 },
    limits: ONE,
    trouble: 'none',
  },
];

export const POST_INTERVAL_MS = 30_000;
const ASSETS = 2;
/** Settings of the agents. */
const REQUESTS_PER_MINUTE = 400;
const SAMPLE_MS = 5_000;
/** Finer sampling after the disturbance, until the backlog is drained. */
const FINE = { sampleMs: 1_000, forMs: 600_000 };
const MINUTE_MS = 60_000;
const WARM_LOGINS = 1_000;

/** Observations, with time in seconds since the end of the disturbance; earlier moments are negative. */
export interface Course {
  /** Token requests, accepted posts and rejected posts by second. */
  seconds: { at: number; logins: number; posts: number; refused: number }[];
  samples: { at: number; backlog: number; staleSeconds: number }[];
  /** Mean posts per minute and agent in the last half hour. */
  means: number[];
  /** Attempted logins and posts during the disturbance, per minute and agent. */
  triedPerMinute: number;
}

export async function run(scenario: Scenario, agents: number, isControl = false): Promise<Course> {
  const time = new VirtualTime();
  const limits = scenario.limits(agents);
  const platform = new FleetPlatform(time, { ...limits, loginsPerSecond: WARM_LOGINS });
  const fleet = Array.from(
    { length: agents },
    (_, at) =>
      new FleetAgent({
        number: at,
        clock: time.clock(at + 1, isControl ? 'none' : 'jitter'),
        platform,
        postIntervalMs: POST_INTERVAL_MS,
        requestsPerMinute: REQUESTS_PER_MINUTE,
        isAdapting: !isControl,
        assets: ASSETS,
      }),
  );
  const { before, trouble, after } = scenario.minutes;
  const starting = Promise.all(fleet.map((agent) => agent.start()));
  const samples: Course['samples'] = [];
  const endMs = time.nowMs + (before + trouble) * MINUTE_MS;
  const watch = async (minutes: number) => {
    for (const untilMs = time.nowMs + minutes * MINUTE_MS; time.nowMs < untilMs; ) {
      const isFine = time.nowMs >= endMs && time.nowMs < endMs + FINE.forMs;
      await time.advance(Math.min(isFine ? FINE.sampleMs : SAMPLE_MS, untilMs - time.nowMs));
      samples.push({
        at: Math.round((time.nowMs - endMs) / 1_000),
        backlog: fleet.reduce((sum, { buffer }) => sum + buffer.waiting, 0),
        staleSeconds: Math.round(Math.max(...fleet.map((agent) => agent.stalenessMs(time.nowMs))) / 1_000),
      });
    }
  };
  await watch(before);
  await starting;
  const triedBefore = platform.tried;
  await troubled(scenario, platform, limits, watch);
  const tried = platform.tried - triedBefore;
  platform.away = undefined;
  await watch(after);
  const lastMinute = Math.floor(time.nowMs / MINUTE_MS);
  const from = Math.max(0, lastMinute - Math.min(30, after));
  const means = fleet.map(({ number }) => {
    const minutes = (platform.taken.get(number) ?? []).slice(from, lastMinute);
    return minutes.reduce((sum, one) => sum + (one ?? 0), 0) / (lastMinute - from);
  });
  let isStopped = false;
  const stopping = Promise.all(fleet.map((agent) => agent.stop())).then(() => {
    isStopped = true;
  });
  while (!isStopped) await time.advance(1_000);
  await stopping;
  const endSecond = Math.floor(endMs / 1_000);
  const seconds = Array.from({ length: Math.floor(time.nowMs / 1_000) }, (_, at) => ({
    at: at - endSecond,
    ...(platform.seconds[at] ?? { logins: 0, posts: 0, refused: 0 }),
  }));
  return { seconds, samples, means, triedPerMinute: trouble === 0 ? 0 : tried / agents / trouble };
}

async function troubled(
  { trouble, minutes }: Scenario,
  platform: FleetPlatform,
  limits: PlatformLimits,
  watch: (minutes: number) => Promise<void>,
): Promise<void> {
  platform.away = trouble === 'tls' ? 'platform.tls' : trouble === 'none' ? undefined : 'platform.connection_refused';
  if (trouble !== 'rolling') await watch(minutes.trouble);
  for (let away = 0; trouble === 'rolling' && away < minutes.trouble; away++) {
    platform.away = 'platform.connection_refused';
    await watch(1 / 6);
    platform.away = undefined;
    await watch(5 / 6);
  }
  platform.limits.loginsPerSecond = limits.loginsPerSecond;
}

/** Returns the maximum within a number of seconds after the disturbance. */
export function peak(course: Course, of: 'logins' | 'posts' | 'refused', seconds = 1): number {
  const counts = course.seconds.filter(({ at }) => at >= 0).map((second) => second[of]);
  let most = 0;
  for (let from = 0; from + seconds <= counts.length; from++) {
    most = Math.max(
      most,
      counts.slice(from, from + seconds).reduce((sum, one) => sum + one, 0),
    );
  }
  return most;
}

/** Returns the seconds from the end of the disturbance until the backlog has its usual size, or undefined. */
export function drainedAfter({ samples }: Course, { minutes }: Scenario): number | undefined {
  const usual = samples.filter(({ at }) => at < -60 * minutes.trouble).slice(-12);
  const most = Math.max(...usual.map(({ backlog }) => backlog));
  return samples.find(({ at, backlog }) => at > 0 && backlog <= 1.1 * most)?.at;
}

/** Returns the maximum age of the newest value, starting a number of seconds after the disturbance. */
export function staleFrom({ samples }: Course, seconds: number): number {
  return Math.max(...samples.filter(({ at }) => at >= seconds).map(({ staleSeconds }) => staleSeconds));
}
