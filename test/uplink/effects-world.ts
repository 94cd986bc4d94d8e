import { pino } from 'pino';
import type { Batch, OutgoingBuffer } from '../../src/buffer/client/lanes.ts';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import { type BatchDelivery, type Slices, slicesOf } from '../../src/uplink/batch-delivery.ts';
import { DeliveryLog } from '../../src/uplink/delivery-log.ts';
import { Effects } from '../../src/uplink/effects.ts';
import { FaultAttribution } from '../../src/uplink/fault-attribution.ts';
import { HeldSeries } from '../../src/uplink/held-series.ts';
import type { Answered } from '../../src/uplink/outcome.ts';
import { PlatformAvailability } from '../../src/uplink/platform-availability.ts';
import type { AccessPort, PostBudget, UplinkHooks } from '../../src/uplink/ports.ts';
import { PostSize } from '../../src/uplink/post-size.ts';
import { Probes } from '../../src/uplink/probes.ts';
import { SeriesWaits } from '../../src/uplink/series-waits.ts';
import { type Verdict, verdictOfAnswer } from '../../src/uplink/verdict.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export function batch(id: number, values = 10, series: readonly number[] = [1, 2]): Batch {
  return { id, asset: 7, series, values, liveValues: values, backlogValues: 0, body: new Uint8Array(100) };
}

/** What the platform says: a status, and words where it is no success. */
export function said(status: number, words = `says ${status}`): Verdict {
  return verdictOfAnswer({ status, text: status === 204 ? '' : words, header: () => undefined, redact: String }, [204]);
}

type Told = string | Record<string, unknown>;

/**
 * The parts of the uplink that `Effects` changes, and around them a store, access, a budget, hooks and a log that keep what they are
 * told, in one order: `store: settle 1`, or a line of the log without its words for people.
 */
export class EffectsWorld {
  readonly clock = new ManualClock();
  readonly told: Told[] = [];
  readonly availability = new PlatformAvailability(this.clock);
  readonly faults = new FaultAttribution(60_000);
  readonly schedule = new AssetSchedule(this.clock);
  readonly waits = new SeriesWaits();
  readonly size = new PostSize(480_000);
  readonly probes: Probes;
  readonly effects: Effects;
  readonly heldAssets = new Set<number>();
  readonly heldSeries: number[] = [];
  /** So many of the next calls of the store fail. */
  storeFailures = 0;
  accessFails = false;
  #settling: Promise<void> | undefined;
  restingUntilMs: number | undefined;
  /** What the store divides a batch into. */
  divided: Batch[] = [];
  readonly stop = new AbortController();

  constructor(hooks?: UplinkHooks) {
    this.clock.random = () => 1;
    const { clock, schedule, waits, availability, faults, size } = this;
    const access = this.#access();
    const buffer = this.#store();
    this.probes = new Probes({ access, clock, schedule, waits });
    const write = (line: string) => {
      const { msg: _msg, hint: _hint, ...facts } = JSON.parse(line) as Record<string, unknown>;
      this.told.push(facts);
    };
    this.effects = new Effects({
      buffer,
      budget: this.#budget(),
      access,
      clock,
      deliveryLog: new DeliveryLog(clock, pino({ base: null, level: 'debug', timestamp: false }, { write })),
      hooks: hooks ?? {
        delivered: (values, waitedMs) => this.#tell(`hook: delivered ${values} after ${waitedMs}`),
        quarantined: (reason, values) => this.#tell(`hook: quarantined ${values}, ${reason}`),
      },
      availability,
      faults,
      schedule,
      waits,
      heldSeries: new HeldSeries(buffer, access, waits),
      probes: this.probes,
      size,
      signal: this.stop.signal,
      wake: () => this.#tell('wake'),
    });
  }

  /** A batch whose one slice is posting, unless told. */
  begin(facts: Partial<BatchDelivery> = {}, slices: Partial<Slices> = {}, slice = batch(1)): BatchDelivery {
    const all = { ...slicesOf(slice), waiting: [], ...slices };
    const delivery: BatchDelivery = {
      name: `x-${this.schedule.deliveries.size + 1}`,
      asset: 7,
      lane: 'live',
      kind: 'live',
      probe: undefined,
      trial: false,
      state: { kind: 'posting', after: 'next', slices: all, slice },
      ...facts,
    };
    this.schedule.begin(delivery);
    return delivery;
  }

  /** The post of the delivery's slice is answered; all that follows from it has been told then. */
  async answer(delivery: BatchDelivery, verdict: Verdict, facts: Partial<Answered> = {}): Promise<Told[]> {
    const posted = { post: this.faults.number(), startedMs: this.clock.monotonicMs() };
    const answer = { ...posted, verdict, askedMs: 0, at: this.faults.next, ...facts };
    await this.effects.meet(delivery, { kind: 'answered', answer });
    await this.effects.settled();
    return this.heard();
  }

  /** Settlements of the store wait until this is resolved. */
  holdSettlements(): PromiseWithResolvers<void> {
    const held = Promise.withResolvers<void>();
    this.#settling = held.promise;
    return held;
  }

  /** Of what was told since it was last asked. */
  heard(): Told[] {
    return this.told.splice(0);
  }

  #tell(words: string): void {
    this.told.push(words);
  }

  #store(): OutgoingBuffer {
    const answer = async <Answer>(words: string, given: Answer): Promise<Answer> => {
      this.#tell(`store: ${words}`);
      await Promise.resolve();
      if (this.storeFailures > 0) {
        this.storeFailures--;
        throw new Error('the disk is away');
      }
      return given;
    };
    const none = (words: string) => answer(words, undefined);
    return {
      isReady: () => true,
      lanes: () => new Map(),
      onChange: () => () => {},
      take: (request) => none(`take of ${request.asset}`),
      settle: async (id) => {
        await this.#settling;
        return none(`settle ${id}`);
      },
      release: (id) => none(`release ${id}`),
      divide: (id) => answer(`divide ${id}`, this.divided),
      quarantine: (id, { status, message }) => none(`quarantine ${id}, ${status} ${message}`),
      holdSeries: (series) => none(`hold series [${series}]`),
    };
  }

  #access(): AccessPort {
    const tell = async (words: string) => {
      this.#tell(`access: ${words}`);
      await Promise.resolve();
      if (this.accessFails) throw new Error('the holds are away');
    };
    return {
      isHeld: (asset) => this.heldAssets.has(asset),
      heldSeries: () => this.heldSeries,
      dueProbes: () => [],
      nextProbeAtMs: () => undefined,
      probed: ({ asset, onlySeries }) => this.#tell(`access: probed ${asset} [${onlySeries}]`),
      unanswered: ({ asset, onlySeries }) => this.#tell(`access: unanswered ${asset} [${onlySeries}]`),
      refused: (asset, status, series, instrumentation) =>
        tell(`refused ${asset}, ${status}, series ${series}, instrumentation ${instrumentation}`),
      foundNothing: ({ asset }) => tell(`found nothing ${asset}`),
      delivered: (asset, series) => tell(`delivered ${asset} [${series}]`),
      onChange: () => () => {},
    };
  }

  #budget(): PostBudget {
    const world = this;
    return {
      isLimited: true,
      intervalMs: 0,
      tryTake: () => true,
      nextAtMs: () => world.clock.monotonicMs(),
      giveBack: () => world.#tell('budget: give back'),
      get restingUntilMs() {
        return world.restingUntilMs;
      },
      endRest: () => {},
    };
  }
}
