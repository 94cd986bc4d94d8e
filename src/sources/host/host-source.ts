import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext, SourceState, TestedValue } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { HostLook } from './host-files.ts';
import { readOne } from './host-reading.ts';
import type { HostSpec, HostValue } from './host-spec.ts';

/**
 * Reads the machine itself (contract/host-readings.ts names what). Rates lie between two looks, so the first look gives none;
 * so does the look after a counter went back (an interface that was made anew).
 */
export class HostSource implements RunningSource {
  readonly #context: SourceContext<HostSpec, HostValue>;
  readonly #trouble: TroubleLog;
  readonly #root: string;
  readonly #poller: Poller<HostValue>;
  readonly #startedMs: number;
  /** By period: the rates of a value lie between its own looks. */
  readonly #last = new Map<number, HostLook>();
  #errors = 0;

  /** `root`: where the machine's files stand, for tests. */
  constructor(context: SourceContext<HostSpec, HostValue>, root = '/') {
    this.#context = context;
    const { source, points, gate, clock, log } = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    this.#root = root;
    this.#startedMs = clock.monotonicMs();
    const read = (due: readonly Point<HostValue>[]) => this.read(due);
    this.#poller = new Poller({ source: source.name, points, gate, clock, log, read });
  }

  start(): void {
    this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
  }

  state(): SourceState {
    const { late, failed } = this.#poller.stats;
    return { connected: undefined, sinceMs: this.#startedMs, errors: this.#errors + failed, pollsLate: late };
  }

  /** One value for each point that can be read now. What cannot is said once, and again when it can. */
  async read(points: readonly Point<HostValue>[]): Promise<void> {
    const { gate, clock } = this.#context;
    const look = new HostLook(this.#root, clock.monotonicMs());
    for (const point of points) {
      const fields = { value: point.name, reading: point.spec.reading };
      try {
        const value = await readOne(point.spec.reading, look, this.#last.get(point.everyMs));
        this.#trouble.over('host.unreadable', fields, 'a reading is back', point.name);
        if (value !== undefined) gate.take(point, value);
      } catch (error) {
        this.#errors++;
        gate.fail(point);
        const trouble = { event: 'host.unreadable', ...fields, error: messageOf(error) };
        this.#trouble.again(trouble, 'a reading of the machine is not to be had', point.name);
      }
    }
    for (const everyMs of new Set(points.map((point) => point.everyMs))) this.#last.set(everyMs, look);
  }
}

/** Between two looks, for rates. */
const BETWEEN_LOOKS_MS = 1_000;

/** Reads every point once; where one is a rate, by two looks. */
export async function testHost(
  points: readonly Point<HostValue>[],
  clock: Clock,
  signal: AbortSignal,
  root = '/',
): Promise<TestedValue[]> {
  const tested = new Map<Point<HostValue>, TestedValue>();
  let last: HostLook | undefined;
  for (let round = 0; round < 2 && tested.size < points.length; round++) {
    if (round > 0) await clock.sleep(BETWEEN_LOOKS_MS, signal);
    const look = new HostLook(root, clock.monotonicMs());
    for (const point of points.filter((one) => !tested.has(one))) {
      const read = readOne(point.spec.reading, look, last);
      const outcome = await read.catch((error: unknown) => ({ problem: messageOf(error) }));
      if (typeof outcome === 'number') tested.set(point, { point, raw: outcome });
      else if (outcome !== undefined) tested.set(point, { point, ...outcome });
    }
    last = look;
  }
  return points.map((point) => tested.get(point) ?? { point, problem: 'it gave nothing in two looks' });
}
