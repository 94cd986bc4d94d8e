import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { parseHostReading } from '../../contract/host-readings.ts';
import type { TestedValue } from '../arrivals.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext, SourceState } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { FileSystems } from './file-systems.ts';
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
  readonly #fileSystems: FileSystems;
  /** One per path of `disk` readings and one for all other readings: a share that does not respond delays nothing else. */
  readonly #pollers: Poller<HostValue>[];
  readonly #startedMs: number;
  /** The previous look of each point, for rates. */
  readonly #last = new WeakMap<Point<HostValue>, HostLook>();
  #errors = 0;

  /** `root`: where the machine's files stand, for tests. */
  constructor(context: SourceContext<HostSpec, HostValue>, root = '/') {
    this.#context = context;
    const { source, points, gate, clock, log } = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    this.#root = root;
    this.#startedMs = clock.monotonicMs();
    this.#fileSystems = new FileSystems(clock);
    const read = (due: readonly Point<HostValue>[], signal: AbortSignal) => this.read(due, signal);
    this.#pollers = [...Map.groupBy(points, pathOf).values()].map(
      (group) => new Poller({ source: source.name, points: group, gate, clock, log, read }),
    );
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
  }

  state(): SourceState {
    let errors = this.#errors;
    let pollsLate = 0;
    for (const { stats } of this.#pollers) {
      errors += stats.failed;
      pollsLate += stats.late;
    }
    return { connected: undefined, sinceMs: this.#startedMs, errors, pollsLate };
  }

  /** Reads all points at the same time. Each value is stored as soon as it has been read; failures are logged. */
  async read(points: readonly Point<HostValue>[], signal: AbortSignal): Promise<void> {
    const look = lookAt(this.#root, this.#context.clock, this.#fileSystems, signal);
    await Promise.all(points.map((point) => this.#readPoint(point, look, signal)));
  }

  async #readPoint(point: Point<HostValue>, look: HostLook, signal: AbortSignal): Promise<void> {
    const { gate } = this.#context;
    const fields = { value: point.name, reading: point.spec.reading };
    const last = this.#last.get(point);
    this.#last.set(point, look);
    try {
      const value = await readOne(point.spec.reading, look, last);
      this.#trouble.over('host.unreadable', fields, 'reading restored', point.name);
      if (value !== undefined) gate.take(point, value);
    } catch (error) {
      if (signal.aborted) return;
      this.#errors++;
      gate.fail(point, messageOf(error));
      const trouble = { event: 'host.unreadable', ...fields, error: messageOf(error) };
      this.#trouble.again(trouble, 'failed to read a value of the machine', point.name);
    }
  }
}

/** The path of a `disk` reading; `undefined` for all other readings. */
function pathOf({ spec }: Point<HostValue>): string | undefined {
  const parsed = parseHostReading(spec.reading);
  return parsed?.reading.argument?.what === 'path' ? (parsed.argument ?? '/') : undefined;
}

function lookAt(root: string, clock: Clock, fileSystems: FileSystems, signal: AbortSignal): HostLook {
  return new HostLook(root, clock.monotonicMs(), (path) => fileSystems.space(path, signal));
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
  const fileSystems = new FileSystems(clock);
  let last: HostLook | undefined;
  for (let round = 0; round < 2 && tested.size < points.length; round++) {
    if (round > 0) await clock.sleep(BETWEEN_LOOKS_MS, signal);
    const look = lookAt(root, clock, fileSystems, signal);
    const read = async (point: Point<HostValue>) => {
      const reading = readOne(point.spec.reading, look, last);
      const outcome = await reading.catch((error: unknown) => ({ problem: messageOf(error) }));
      if (typeof outcome === 'number') tested.set(point, { point, raw: outcome });
      else if (outcome !== undefined) tested.set(point, { point, ...outcome });
    };
    await Promise.all(points.filter((one) => !tested.has(one)).map(read));
    last = look;
  }
  return points.map((point) => tested.get(point) ?? { point, problem: 'it gave nothing in two looks' });
}
