import { ManualClock } from '../unit/doubles/manual-clock.ts';
import type { EventVerdict } from './events-way.ts';
import { reload, WHOLE_FAULTS } from './faults.ts';
import { summed, type Verdict } from './oracle.ts';
import { STOPPED_WITHIN_MS } from './proven-gateway.ts';
import type { RulesVerdict } from './rules-way.ts';
import { type Happening, scheduleText } from './schedule.ts';
import { pause } from './ways/way.ts';
import { type Stop, World } from './world.ts';

/** Time limit for a fresh value after a fault: docs/interface.md specifies it for a platform outage. */
const FRESH_WITHIN_MS = 75_000;
/** A shutdown that takes longer counts as hung. */
const ENDLESS_STOP_MS = 180_000;
/** Duration of a day without faults. */
const CALM_MS = 5_000;

export interface DayReport {
  seed: number;
  schedule: string;
  faults: Record<string, number>;
  ways: Record<string, Verdict>;
  all: Verdict;
  events: EventVerdict;
  rules: RulesVerdict;
  allowedRepeats: number;
  /** Time after each fault, or after all faults, until a fresh value was delivered. */
  freshMs: { after: string; ms: number }[];
  /** Clean shutdowns, and active faults during them. */
  stops: Stop[];
  memoryMb: number;
  /** Valid tokens after the clean shutdown at the end. */
  tokensLeft: number;
  /** Problems; empty on success. */
  wrong: string[];
}

export interface DayOptions {
  seed: number;
  schedule: readonly Happening[];
  perSecond: number;
  /** Wait for a fresh value after each fault. */
  oneByOne?: boolean;
  /** Also run the inputs with expensive servers. */
  isWhole?: boolean;
  /** Operator actions performed during each fault, one after another. */
  meanwhile?: 'stop' | 'reload';
  env?: Record<string, string>;
  /** Check the recovery time of fresh values: by `scripts/prove`, but not by tests, which run in parallel. */
  isTimed?: boolean;
  /** Receives each step as it happens. */
  say?: (what: string) => void;
}

/**
 * Runs a schedule of faults while all inputs produce values and the platform sends events, then waits for completion
 * and checks. Rejects with the schedule if completion is not reached.
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
    await this.#fresh('startup');
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
    if (meanwhile === undefined) await this.#checkOthers(fault, as);
    const answered = world.agent.reloads;
    const isReloading = meanwhile === 'reload' && world.agent.hasBeenReady;
    if (meanwhile === 'stop') {
      const stop = await world.stop(as, fault);
      this.#options.say?.(`shutdown during ${as}: ${JSON.stringify(stop)}`);
    }
    // Deliveries could not be recorded, as after a crash.
    if (meanwhile === 'stop' && WHOLE_FAULTS[fault]!.slot === 'disk') world.farEnd.crashed();
    if (isReloading) await reload(world, { POST_INTERVAL: answered % 2 === 0 ? '300ms' : '200ms' });
    await WHOLE_FAULTS[fault]!.end?.(world);
    if (meanwhile === 'stop') world.launch();
    await this.#fresh(as);
    if (isReloading) await world.agent.until(() => world.agent.reloads > answered, 'new files are loaded');
    this.#expectRunning();
  }

  async #checkOthers(fault: string, as: string): Promise<void> {
    const { stillWorks } = WHOLE_FAULTS[fault]!;
    if (stillWorks === undefined) return;
    const began = performance.now();
    await stillWorks(this.#world);
    const ms = Math.round(performance.now() - began);
    this.#freshMs.push({ after: `${as}, while active`, ms });
    this.#options.say?.(`everything else works during ${as}: ${ms} ms`);
  }

  /**
   * Slots run independently: a slow step, such as a shutdown on a hanging disk, does not delay the end of other
   * faults.
   */
  async #mixed(schedule: readonly Happening[]): Promise<void> {
    const began = performance.now();
    const slots = Map.groupBy(schedule, ({ fault }) => WHOLE_FAULTS[fault]!.slot);
    const lives = [...slots.values()].map((happenings) => this.#slot(happenings, began));
    await Promise.allSettled(lives);
    await Promise.all(lives);
    await this.#fresh('all faults');
  }

  async #slot(happenings: readonly Happening[], began: number): Promise<void> {
    const until = (atMs: number) => pause(Math.max(0, began + atMs - performance.now()));
    for (const { fault, atMs, forMs } of happenings) {
      await until(atMs);
      this.#options.say?.(fault);
      await WHOLE_FAULTS[fault]!.begin(this.#world);
      this.#expectRunning();
      await until(atMs + forMs);
      await WHOLE_FAULTS[fault]!.end?.(this.#world);
      this.#expectRunning();
    }
  }

  async #fresh(after: string): Promise<void> {
    const ms = Math.round(await this.#world.freshMs());
    this.#freshMs.push({ after, ms });
    this.#options.say?.(`a fresh value after ${after}: ${ms} ms`);
  }

  #expectRunning(): void {
    const { agent } = this.#world;
    if (agent.isMeantToRun && !agent.isRunning)
      throw new Error(`the agent exited unexpectedly with ${agent.endedWith}\n${agent.output.slice(-4_000)}`);
  }

  async #judge(): Promise<DayReport> {
    const world = this.#world;
    const { seed, schedule } = this.#options;
    const events = await world.events.judge();
    await world.stop('nothing');
    const rules = await world.rules.judge(world.disk.state);
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
      rules,
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
  const { all, events, rules } = report;
  const wrong: string[] = [];
  for (const what of ['missing', 'invented', 'different'] as const) {
    if (all[what] > 0) wrong.push(`${all[what]} values ${what}`);
  }
  for (const [way, { acknowledged }] of Object.entries(report.ways)) {
    if (acknowledged === 0 && way !== 'earlier') wrong.push(`no value of the input ${way} was acknowledged`);
  }
  if (all.repeated > report.allowedRepeats) {
    wrong.push(`${all.repeated} values repeated, at most ${report.allowedRepeats} allowed`);
  }
  if (rules.missing > 0) wrong.push(`${rules.missing} of ${rules.crossings} crossings of a local rule have no event`);
  if (rules.invented > 0) wrong.push(`${rules.invented} events of a local rule without a crossing`);
  if (events.missing > 0) wrong.push(`${events.missing} acknowledged events have no reaction`);
  if (events.invented > 0) wrong.push(`${events.invented} reactions without an event`);
  if (events.repeated > 0 && Object.keys(report.faults).length === 0) {
    wrong.push(`${events.repeated} reactions ran again without a fault`);
  }
  if (events.acknowledged < events.sent)
    wrong.push(`${events.sent - events.acknowledged} events were never acknowledged`);
  for (const { after, ms } of report.freshMs) {
    if (isTimed && ms > FRESH_WITHIN_MS) wrong.push(`a fresh value after ${after} arrived after ${ms} ms`);
  }
  for (const stop of report.stops) wrong.push(...wrongInStop(stop));
  if (report.tokensLeft > 0) wrong.push(`${report.tokensLeft} tokens valid after a clean shutdown`);
  return wrong;
}

/**
 * A process that receives SIGTERM before its handler is installed is ended by the signal, which a service manager
 * counts as a clean exit.
 */
function wrongInStop({ during, fault: name = '', wasReady, exit, ms, tokens }: Stop): string[] {
  const fault = WHOLE_FAULTS[name];
  const mayEnd = [0, ...(wasReady ? [] : ['SIGTERM']), ...(fault?.outlivesStops ? ['SIGKILL'] : [])];
  const wrong = mayEnd.includes(exit) ? [] : [`shutdown during ${during} ended with ${exit} after ${ms} ms`];
  const couldRevoke = wasReady && fault !== undefined && fault.slot !== 'platform';
  return couldRevoke && tokens > 0 ? [...wrong, `${tokens} tokens valid after a shutdown during ${during}`] : wrong;
}
