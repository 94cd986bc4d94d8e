import { ManualClock } from '../doubles/manual-clock.ts';
import type { EventVerdict } from './events-way.ts';
import { reload, WHOLE_FAULTS } from './faults.ts';
import { summed, type Verdict } from './oracle.ts';
import { STOPPED_WITHIN_MS } from './proven-gateway.ts';
import { type Happening, scheduleText } from './schedule.ts';
import { pause } from './ways/way.ts';
import { type Stop, World } from './world.ts';

/** Within which a fresh value gets through after a fault: docs/interface.md says it of a platform that was away. */
const FRESH_WITHIN_MS = 75_000;
/** A stop that takes longer never ends. */
const ENDLESS_STOP_MS = 180_000;
/** So long is a day on which nothing fails. */
const CALM_MS = 5_000;

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
  /** Orderly stops, and what held meanwhile. */
  stops: Stop[];
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
  /** By the ways too whose servers cost much. */
  isWhole?: boolean;
  /** What an operator does while each fault holds, one by one. */
  meanwhile?: 'stop' | 'reload';
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
  const world = await World.open({
    chance: () => chance.random(),
    env: options.env ?? {},
    isWhole: options.isWhole ?? false,
    stoppedWithinMs: options.isTimed ? STOPPED_WITHIN_MS : ENDLESS_STOP_MS,
  });
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
    await world.opcua?.begun();
    const watch = setInterval(() => {
      this.#memoryMb = Math.max(this.#memoryMb, world.agent.memoryMb());
    }, 250);
    try {
      if (oneByOne) for (const happening of schedule) await this.#alone(happening);
      else await this.#mixed(schedule);
      if (schedule.length === 0) await pause(CALM_MS);
    } finally {
      clearInterval(watch);
    }
    await world.ready();
    await world.drain();
    return await this.#judge();
  }

  async #alone({ fault, forMs, as = fault }: Happening): Promise<void> {
    this.#options.say?.(as);
    const { meanwhile } = this.#options;
    const world = this.#world;
    await WHOLE_FAULTS[fault]!.begin(world);
    await pause(forMs);
    if (meanwhile === undefined) await this.#neighbours(fault, as);
    const answered = world.agent.reloads;
    const isHeard = meanwhile === 'reload' && world.agent.hasBeenReady;
    if (meanwhile === 'stop') {
      const stop = await world.stop(as, fault);
      this.#options.say?.(`a stop during ${as}: ${JSON.stringify(stop)}`);
    }
    // What had been delivered could not be written down: as after a crash.
    if (meanwhile === 'stop' && WHOLE_FAULTS[fault]!.slot === 'disk') world.farEnd.crashed();
    if (isHeard) await reload(world, { POST_INTERVAL: answered % 2 === 0 ? '300ms' : '200ms' });
    await WHOLE_FAULTS[fault]!.end?.(world);
    if (meanwhile === 'stop') world.launch();
    await this.#fresh(as);
    if (isHeard) await world.agent.until(() => world.agent.reloads > answered, 'new files are read');
    this.#demandRunning();
  }

  async #neighbours(fault: string, as: string): Promise<void> {
    const { stillWorks } = WHOLE_FAULTS[fault]!;
    if (stillWorks === undefined) return;
    const began = performance.now();
    await stillWorks(this.#world);
    const ms = Math.round(performance.now() - began);
    this.#freshMs.push({ after: `${as}, while it holds`, ms });
    this.#options.say?.(`everything else works during ${as}: ${ms} ms`);
  }

  /** Each slot goes its own way: what takes its time, as a stop does where the disk hangs, keeps no other fault from ending. */
  async #mixed(schedule: readonly Happening[]): Promise<void> {
    const began = performance.now();
    const slots = Map.groupBy(schedule, ({ fault }) => WHOLE_FAULTS[fault]!.slot);
    const lives = [...slots.values()].map((happenings) => this.#slot(happenings, began));
    await Promise.allSettled(lives);
    await Promise.all(lives);
    await this.#fresh('all of them');
  }

  async #slot(happenings: readonly Happening[], began: number): Promise<void> {
    const until = (atMs: number) => pause(Math.max(0, began + atMs - performance.now()));
    for (const { fault, atMs, forMs } of happenings) {
      await until(atMs);
      this.#options.say?.(fault);
      await WHOLE_FAULTS[fault]!.begin(this.#world);
      this.#demandRunning();
      await until(atMs + forMs);
      await WHOLE_FAULTS[fault]!.end?.(this.#world);
      this.#demandRunning();
    }
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
    await world.stop('nothing');
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
      stops: world.stops,
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
  if (events.repeated > 0 && Object.keys(report.faults).length === 0) {
    wrong.push(`${events.repeated} reactions ran again, though nothing failed`);
  }
  if (events.acknowledged < events.sent) wrong.push(`${events.sent - events.acknowledged} events were never taken`);
  for (const { after, ms } of report.freshMs) {
    if (isTimed && ms > FRESH_WITHIN_MS) wrong.push(`after ${after} a fresh value took ${ms} ms`);
  }
  for (const stop of report.stops) wrong.push(...wrongInStop(stop));
  if (report.tokensLeft > 0) wrong.push(`${report.tokensLeft} tokens live after a clean stop`);
  return wrong;
}

/** To SIGTERM before it can hear of it a program ends by the signal, which a service manager takes for an orderly end. */
function wrongInStop({ during, fault: name = '', wasReady, exit, ms, tokens }: Stop): string[] {
  const fault = WHOLE_FAULTS[name];
  const mayEnd = [0, ...(wasReady ? [] : ['SIGTERM']), ...(fault?.outlivesStops ? ['SIGKILL'] : [])];
  const wrong = mayEnd.includes(exit) ? [] : [`asked to stop during ${during} it ended with ${exit} after ${ms} ms`];
  const couldRevoke = wasReady && fault !== undefined && fault.slot !== 'platform';
  return couldRevoke && tokens > 0 ? [...wrong, `${tokens} tokens outlived a stop during ${during}`] : wrong;
}
