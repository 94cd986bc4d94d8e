import type { Clock } from '../base/clock.ts';
import type { ObjectKind } from './access-event.ts';
import { MAX_OBJECTS, NOTED_FOR_MS } from './known-objects.ts';

interface ObjectStore {
  accepted(objects: readonly { kind: ObjectKind; id: number }[], wallMs: number): Promise<void>;
}

/** Assets with posts within this interval share one commit. */
const GATHER_MS = 60_000;

/**
 * Records the assets and instrumentations for which the platform accepted values. Each object is written at most once
 * per day, and writes are batched to reduce flash wear. A crash loses at most one minute of records, which the next
 * posts restore.
 */
export class AcceptedObjects {
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  /** Monotonic time of the latest record, in milliseconds, by key such as `asset 881`. */
  readonly #noted = new Map<string, number>();
  #waiting: { kind: ObjectKind; id: number }[] = [];
  #cancel: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(store: ObjectStore, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Records an accepted post. `instrumentation` is set if the post URL contains it. Never throws. */
  note(asset: number, instrumentation?: number): void {
    this.#noteObject('asset', asset);
    if (instrumentation !== undefined) this.#noteObject('instrumentation', instrumentation);
  }

  /** Writes the pending records. */
  async stop(): Promise<void> {
    this.#write();
    await this.#writing;
  }

  #noteObject(kind: ObjectKind, id: number): void {
    const nowMs = this.#clock.monotonicMs();
    const key = `${kind} ${id}`;
    const notedMs = this.#noted.get(key);
    if (notedMs !== undefined && nowMs - notedMs < NOTED_FOR_MS) return;
    // The store skips objects that it already contains, so a repeated record costs only a lookup.
    if (this.#noted.size >= MAX_OBJECTS) this.#noted.clear();
    this.#noted.set(key, nowMs);
    this.#waiting.push({ kind, id });
    this.#cancel ??= this.#clock.after(GATHER_MS, () => this.#write());
  }

  #write(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const objects = this.#waiting.splice(0);
    if (objects.length === 0) return;
    const written = this.#store.accepted(objects, this.#clock.wallMs());
    // The buffer reports disk errors. The next posts record these objects again.
    this.#writing = written.catch(() => {
      for (const { kind, id } of objects) this.#noted.delete(`${kind} ${id}`);
    });
  }
}
