import type { Clock } from '../base/clock.ts';
import type { HeldObject } from './access-table.ts';

interface ObjectStore {
  accepted(objects: readonly HeldObject[], wallMs: number): Promise<void>;
}

/** Assets with posts within this interval share one commit. */
const GATHER_MS = 60_000;

/**
 * Reports the assets and instrumentations for which the platform accepted values to the store, once per minute. The
 * store writes each object once per day. A crash loses at most one minute of records, which the next posts restore.
 */
export class AcceptedObjects {
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  readonly #waiting = new Map<string, HeldObject>();
  #cancel: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(store: ObjectStore, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Records an accepted post. `instrumentation` is set if the post URL contains it. Never throws. */
  note(asset: number, instrumentation?: number): void {
    this.#waiting.set(`asset ${asset}`, { kind: 'asset', id: asset });
    if (instrumentation !== undefined) {
      this.#waiting.set(`instrumentation ${instrumentation}`, { kind: 'instrumentation', id: instrumentation });
    }
    this.#cancel ??= this.#clock.after(GATHER_MS, () => this.#write());
  }

  /** Writes the pending records. */
  async stop(): Promise<void> {
    this.#write();
    await this.#writing;
  }

  #write(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const objects = [...this.#waiting.values()];
    this.#waiting.clear();
    if (objects.length === 0) return;
    // The buffer reports disk errors. The next posts record these objects again.
    this.#writing = this.#store.accepted(objects, this.#clock.wallMs()).catch(() => {});
  }
}
