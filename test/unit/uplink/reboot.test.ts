import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { StoredValues } from '../../../src/buffer/client/stored-values.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { freshFolder } from '../../fresh-folder.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { DirectPlatform, Plant } from './plant.ts';

const POST_INTERVAL_MS = 10_000;
const LONG_UPTIME_MS = 30 * 86_400_000;
const BOUNDS = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' as const };

const folder = freshFolder('reboot-');

/** Opens a gateway's store with the given clock. */
class Gateway {
  readonly #store: ValueStore;
  readonly #catalogue: SeriesCatalogue;
  readonly outgoing: StoredValues;
  readonly #clock: ManualClock;

  constructor(clock: ManualClock, boot: string) {
    const path = join(folder.path, 'buffer.db');
    const options = { bounds: BOUNDS, flushAfterMs: 4_000, flushValues: 100_000 };
    const now = { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs(), boot };
    const opening = ValueStore.open(openDatabase(path), path, options, now);
    this.#clock = clock;
    const store = opening.store;
    this.#store = store;
    this.#catalogue = new SeriesCatalogue(opening.series);
    const port = {
      take: async (request: Parameters<ValueStore['take']>[0]) => store.take(request),
      settle: async (batch: number) => store.settle(batch),
      release: async (batch: number) => store.release(batch),
      divide: async (batch: number) => store.divide(batch),
      quarantine: async (batch: number, why: Parameters<ValueStore['quarantine']>[1]) => store.quarantine(batch, why),
      holdSeries: async (series: readonly number[]) => store.holdSeries(series),
    };
    const note = (facts: StoreFacts) => this.outgoing.update(facts.lanes);
    this.outgoing = new StoredValues(port, clock, note);
    note(opening.facts);
  }

  accept(asset: number, value: number): void {
    const columns = new ValueColumns();
    columns.add(this.#catalogue.idOf(asset, `s${asset}`, undefined, undefined), this.#clock.wallMs(), value, 0);
    const times = { monotonicMs: this.#clock.monotonicMs(), wallMs: this.#clock.wallMs() };
    this.outgoing.update(this.#store.commit({ columns, newSeries: this.#catalogue.takeUnsaved(), ...times }).lanes);
  }

  close(): void {
    this.#store.close();
  }
}

let gateway: Gateway;
afterEach(() => gateway.close());

describe('gateway after a reboot', () => {
  it.each([
    ['the monotonic clock restarted', LONG_UPTIME_MS, 'two'],
    ['the agent restarted on the same boot', 0, 'one'],
  ])('posts stored and new values within POST_INTERVAL if %s', async (_name, uptimeMs, boot) => {
    const before = new ManualClock();
    await before.advance(uptimeMs);
    gateway = new Gateway(before, 'one');
    gateway.accept(1, 1);
    gateway.close();

    const clock = uptimeMs > 0 ? new ManualClock() : before;
    gateway = new Gateway(clock, boot);
    gateway.accept(1, 2);
    gateway.accept(2, 3);
    const platform = new DirectPlatform(clock);
    const plant = new Plant(clock, platform, {
      options: { postIntervalMs: POST_INTERVAL_MS },
      outgoing: gateway.outgoing,
    });
    await plant.uplink.start();
    await clock.advance(POST_INTERVAL_MS + 100);
    expect(platform.ledger.numbers).toEqual(new Set([1, 2, 3]));
    await plant.uplink.stop(0);
  });
});
