import { messageOf } from '../../base/errors.ts';
import { parseHostReading } from '../../contract/host-readings.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { FileSystems } from './file-systems.ts';
import { HostSnapshot, readHost } from './host-snapshot.ts';

export type HostSpec = true;

export interface HostValue {
  reading: string;
}

/**
 * Reads values of the gateway itself (see contract/host-readings.ts). Rates require two snapshots, so the first
 * snapshot provides no rates. The same applies after a counter has decreased because an interface was recreated.
 */
export class HostSource implements RunningSource {
  readonly #context: SourceContext<HostSpec, HostValue>;
  readonly #trouble: TroubleLog;
  readonly #root: string;
  readonly #fileSystems: FileSystems;
  /**
   * One poller per path of `disk` readings and one for all other readings, so that an unresponsive share does not
   * delay them.
   */
  readonly #pollers: Poller<HostValue>[];
  /** Previous snapshot of each point, used to calculate rates. */
  readonly #previous = new WeakMap<Point<HostValue>, HostSnapshot>();

  /** `root`: file system root, replaced in tests. */
  constructor(context: SourceContext<HostSpec, HostValue>, root = '/') {
    this.#context = context;
    const { points, clock, log } = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    this.#root = root;
    this.#fileSystems = new FileSystems(clock);
    const read = (due: readonly Point<HostValue>[], signal: AbortSignal) => this.read(due, signal);
    this.#pollers = [...Map.groupBy(points, pathOf).values()].map(
      (group) => new Poller({ ...context, points: group, read }),
    );
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
  }

  /** Reads all points concurrently. Failures are logged. A rate has no reading in the first poll. */
  async read(points: readonly Point<HostValue>[], signal: AbortSignal): Promise<Reading[]> {
    const nowMs = this.#context.clock.monotonicMs();
    const snapshot = new HostSnapshot(this.#root, nowMs, (path) => this.#fileSystems.space(path, signal));
    const readings = await Promise.all(points.map((point) => this.#readPoint(point, snapshot, signal)));
    return readings.filter((reading) => reading !== undefined);
  }

  async #readPoint(point: Point<HostValue>, snapshot: HostSnapshot, signal: AbortSignal): Promise<Reading | undefined> {
    const fields = { value: point.name, reading: point.spec.reading };
    const previous = this.#previous.get(point);
    this.#previous.set(point, snapshot);
    try {
      const raw = await readHost(point.spec.reading, snapshot, previous);
      this.#trouble.recovered('host.unreadable', fields, 'reading restored', point.name);
      return raw === undefined ? undefined : { point, raw };
    } catch (error) {
      if (signal.aborted) return undefined;
      this.#context.status.errors++;
      const trouble = { event: 'host.unreadable', ...fields, error: messageOf(error) };
      this.#trouble.report(trouble, 'failed to read a value from the host', point.name);
      return { point, failure: messageOf(error) };
    }
  }
}

/** Returns the path of a `disk` reading, or `undefined` for other readings. */
function pathOf({ spec }: Point<HostValue>): string | undefined {
  const parsed = parseHostReading(spec.reading);
  return parsed?.reading.argument?.what === 'path' ? (parsed.argument ?? '/') : undefined;
}
