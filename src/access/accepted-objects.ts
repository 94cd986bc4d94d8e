import type { Clock } from '../base/clock.ts';
import type { ObjectKind } from './access-event.ts';
import { MAX_OBJECTS } from './known-objects.ts';

interface ObjectStore {
  accepted(objects: readonly { kind: ObjectKind; id: number }[], wallMs: number): Promise<void>;
}

/** What was noted is passed over for so long. */
const NOTED_FOR_MS = 24 * 3_600_000;
/** All assets that post within a minute are one commit. */
const GATHER_MS = 60_000;

/**
 * Notes the assets and instrumentations that the platform accepted values for. An object is written at most once per day and
 * several together, so posts cost no flash writes. A crash loses at most a minute of notes, which the next posts repeat.
 */
export class AcceptedObjects {
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  /** When an object was noted (monotonic), by `asset 881`. */
  readonly #noted = new Map<string, number>();
  #waiting: { kind: ObjectKind; id: number }[] = [];
  #cancel: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(store: ObjectStore, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** The platform accepted a post. `instrumentation`: where the post's address names it. Never throws. */
  note(asset: number, instrumentation?: number): void {
    this.#noteObject('asset', asset);
    if (instrumentation !== undefined) this.#noteObject('instrumentation', instrumentation);
  }

  /** Writes what waits. */
  async stop(): Promise<void> {
    this.#write();
    await this.#writing;
  }

  #noteObject(kind: ObjectKind, id: number): void {
    const nowMs = this.#clock.monotonicMs();
    const key = `${kind} ${id}`;
    const notedMs = this.#noted.get(key);
    if (notedMs !== undefined && nowMs - notedMs < NOTED_FOR_MS) return;
    // The store passes over what it has: to note an object again costs a look.
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
    // A disk that rejects writes is reported by the buffer. The next post notes them again.
    this.#writing = written.catch(() => {
      for (const { kind, id } of objects) this.#noted.delete(`${kind} ${id}`);
    });
  }
}
