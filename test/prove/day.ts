import { ManualClock } from '../doubles/manual-clock.ts';
import type { EventVerdict } from './events-way.ts';
import { FAULTS } from './faults.ts';
import { summed, type Verdict } from './oracle.ts';
import { type Happening, scheduleText } from './schedule.ts';
import { pause } from './ways/way.ts';
import { World } from './world.ts';

/** Within which a fresh value gets through after a fault: docs/interface.md says it of a platform that was away. */
const FRESH_WITHIN_MS = 75_000;

export interface DayReport {
  seed: number;
  schedule: string;
  faults: Record<string, number>;
  ways: Record<string, Verdict>;
  all: Verdict;
  events: EventVerdict;
  allowedRepeats: number;
  /** After each fault, or after all of them, until a fresh value was at the far end. */
  freshMs: { after: string; ms: number }[];
  memoryMb: number;
  /** Tokens that live after the clean stop at the end. */
  tokensLeft: number;
  /** Sentences; none where all is well. */
  wrong: string[];
}

export interface DayOptions {
  seed: number;
  schedule: readonly Happening[];
  perSecond: number;
  /** Wait for a fresh value after each happening. */
  oneByOne?: boolean;
  env?: Record<string, string>;
  /** How long a fresh value took is judged: by `scripts/prove`, not by tests, which run beside others. */
  isTimed?: boolean;
  /** Hears what happens, when it happens. */
  say?: (what: string) => void;
}

/**
 * Lives a schedule of faults while all ways give values and the platform sends events, then lets everything come to rest and judges. Rejects
 * with the schedule in its words where it cannot come to rest.
 */
export async function liveDay(options: DayOptions): Promise<DayReport> {
  const chance = new ManualClock(0, options.seed + 1);
  const world = await World.open({ chance: () => chance.random(), ...(options.env ? { env: options.env } : {}) });
  const day = new Day(world, options);
  try {
    return await day.live();
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new Error(`seed ${options.seed}: ${scheduleText(options.schedule)}: ${words}`, { cause: error });
  } finally {
    await world.close();
  }
}

class Day {
  readonly #world: World;
  readonly #options: DayOptions;
  readonly #freshMs: DayReport['freshMs'] = [];
  #memoryMb = 0;

  constructor(world: World, options: DayOptions) {
    this.#world = world;
    this.#options = options;
  }

  async live(): Promise<DayReport> {
    const world = this.#world;
    const { schedule, perSecond, oneByOne } = this.#options;
    world.launch();
    await world.ready();
    await world.agent.registered(120_000);
    world.produce(perSecond);
    await this.#fresh('the start');
    const watch = setInterval(() => {
      this.#memoryMb = Math.max(this.#memoryMb, world.agent.memoryMb());
    }, 250);
    try {
      if (oneByOne) for (const happening of schedule) await this.#alone(happening);
      else await this.#mixed(schedule);
    } finally {
      clearInterval(watch);
    }
    await world.ready();
    await world.drain();
    return await this.#judge();
  }

  async #alone({ fault, forMs }: Happening): Promise<void> {
    this.#options.say?.(fault);
    await FAULTS[fault]!.begin(this.#world);
    await pause(forMs);
    await FAULTS[fault]!.end?.(this.#world);
    await this.#fresh(fault);
    this.#demandRunning();
  }

  /** Beginnings and ends in the order of their times; those of a slot never overlap. */
  async #mixed(schedule: readonly Happening[]): Promise<void> {
    const steps = schedule.flatMap(({ fault, atMs, forMs }) => [
      { atMs, what: fault, act: () => FAULTS[fault]!.begin(this.#world) },
      { atMs: atMs + forMs, what: `${fault} is over`, act: () => FAULTS[fault]!.end?.(this.#world) },
    ]);
    steps.sort((a, b) => a.atMs - b.atMs);
    const began = performance.now();
    for (const { atMs, what, act } of steps) {
      await pause(Math.max(0, began + atMs - performance.now()));
      this.#options.say?.(what);
      await act();
      this.#demandRunning();
    }
    await this.#fresh('all of them');
  }

  async #fresh(after: string): Promise<void> {
    const ms = Math.round(await this.#world.freshMs());
    this.#freshMs.push({ after, ms });
    this.#options.say?.(`a fresh value after ${after}: ${ms} ms`);
  }

  #demandRunning(): void {
    const { agent } = this.#world;
    if (agent.isMeantToRun && !agent.isRunning)
      throw new Error(`the agent ended by itself, with ${agent.endedWith}\n${agent.output.slice(-4_000)}`);
  }

  async #judge(): Promise<DayReport> {
    const world = this.#world;
    const { seed, schedule } = this.#options;
    const events = await world.events.judge();
    await world.agent.end('SIGTERM');
    const verdicts = world.oracle.judge(world.sandbox);
    const all = summed(verdicts.values());
    const faults: Record<string, number> = {};
    for (const { fault } of schedule) faults[fault] = (faults[fault] ?? 0) + 1;
    const report: DayReport = {
      seed,
      schedule: scheduleText(schedule),
      faults,
      ways: Object.fromEntries(verdicts),
      all,
      events,
      allowedRepeats: world.farEnd.allowed,
      freshMs: this.#freshMs,
      memoryMb: this.#memoryMb,
      tokensLeft: world.sandbox.tokens.counts().alive,
      wrong: [],
    };
    report.wrong = wrongIn(report, this.#options.isTimed ?? false);
    if (report.wrong.length > 0) report.wrong.push(world.agent.output.slice(-3_000));
    return report;
  }
}

function wrongIn(report: DayReport, isTimed: boolean): string[] {
  const { all, events } = report;
  const wrong: string[] = [];
  for (const what of ['missing', 'invented', 'different'] as const) {
    if (all[what] > 0) wrong.push(`${all[what]} values ${what}`);
  }
  for (const [way, { acknowledged }] of Object.entries(report.ways)) {
    if (acknowledged === 0 && way !== 'earlier') wrong.push(`nothing was acknowledged by way of ${way}`);
  }
  if (all.repeated > report.allowedRepeats) {
    wrong.push(`${all.repeated} values came again, ${report.allowedRepeats} may`);
  }
  if (events.missing > 0) wrong.push(`${events.missing} acknowledged events have no reaction`);
  if (events.invented > 0) wrong.push(`${events.invented} reactions of no event`);
  if (events.acknowledged < events.sent) wrong.push(`${events.sent - events.acknowledged} events were never taken`);
  for (const { after, ms } of report.freshMs) {
    if (isTimed && ms > FRESH_WITHIN_MS) wrong.push(`after ${after} a fresh value took ${ms} ms`);
  }
  if (report.tokensLeft > 0) wrong.push(`${report.tokensLeft} tokens live after a clean stop`);
  return wrong;
}
