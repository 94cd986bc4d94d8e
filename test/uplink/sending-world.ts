import { pino } from 'pino';
import type { Batch, OutgoingBuffer, TakeRequest } from '../../src/buffer/client/lanes.ts';
import { AnswerTime } from '../../src/uplink/answer-time.ts';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import { BackfillRate } from '../../src/uplink/backfill-rate.ts';
import type { BatchDelivery } from '../../src/uplink/batch-delivery.ts';
import { DeliveryLog } from '../../src/uplink/delivery-log.ts';
import { FaultAttribution } from '../../src/uplink/fault-attribution.ts';
import { decide, type Known, type Outcome } from '../../src/uplink/outcome.ts';
import type { PostDecision, ProbeView } from '../../src/uplink/planner.ts';
import type { PostBudget, ValuesAnswer, ValuesCall } from '../../src/uplink/ports.ts';
import type { PostAddress } from '../../src/uplink/post-address.ts';
import { PostSize } from '../../src/uplink/post-size.ts';
import { Sender, type SenderParts } from '../../src/uplink/sender.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export const RUN = Math.floor(Date.UTC(2026, 10, 21) / 1000).toString(36);
export const BATCH: Batch = {
  id: 4,
  asset: 7,
  series: [1, 2],
  values: 10,
  liveValues: 10,
  backlogValues: 0,
  body: new Uint8Array(100),
};
export const TAKEN: ValuesAnswer = { status: 204, text: '', header: () => undefined, redact: String };

/** The sender, and stand-ins that keep what they are told. What follows from what it met is left to the state of the batch alone. */
export class SendingWorld {
  readonly clock = new ManualClock(Date.UTC(2026, 10, 21));
  readonly told: unknown[] = [];
  readonly schedule = new AssetSchedule(this.clock);
  readonly faults = new FaultAttribution(60_000);
  readonly size = new PostSize(480_000);
  readonly answers = new AnswerTime();
  readonly backfill = new BackfillRate(0, 10_000, 5_000, this.clock.monotonicMs());
  readonly stop = new AbortController();
  readonly options = { success: [204] };
  /** What the store gives for one take after the other. */
  given: (Batch | undefined | Error)[] = [BATCH];
  /** The budget has no request yet, once for each of these: in so many milliseconds it has one. */
  readonly waitsMs: number[] = [];
  #freeAtMs = 0;
  whenPaid = () => {};
  address: PostAddress | undefined = { path: '/v1/assets/7/values' };
  byInstrumentation = false;
  answer: (call: ValuesCall) => Promise<ValuesAnswer> = async () => TAKEN;
  readonly sender: Sender;

  constructor(hooks?: SenderParts['hooks']) {
    const { clock, schedule, faults, size, answers, backfill, stop, options } = this;
    const world = this;
    const write = (line: string) => {
      const { level: _level, msg: _msg, ...facts } = JSON.parse(line) as Record<string, unknown>;
      this.told.push(facts);
    };
    const buffer = {
      lanes: () => new Map([[7, { asset: 7, live: 10, oldestLiveAtMs: 250, backlog: 0, oldestBacklogAt: 0 }]]),
      take: async (request: TakeRequest) => {
        this.told.push({ take: request });
        await this.clock.sleep(10);
        const given = this.given.shift();
        if (given instanceof Error) throw given;
        return given;
      },
    };
    const budget = {
      tryTake: (kind: string) => {
        const waitMs = this.waitsMs.shift();
        this.told.push(`${waitMs === undefined ? 'pays' : 'waits'} as ${kind}`);
        this.#freeAtMs = clock.monotonicMs() + (waitMs ?? 0);
        if (waitMs === undefined) this.whenPaid();
        return waitMs === undefined;
      },
      nextAtMs: () => this.#freeAtMs,
    };
    const client = {
      request: (call: ValuesCall) => {
        const { body, signal: _signal, ...facts } = call;
        this.told.push({ ...facts, bytes: body.length });
        return this.answer(call);
      },
    };
    this.sender = new Sender({
      buffer: buffer as unknown as OutgoingBuffer,
      client,
      budget: budget as unknown as PostBudget,
      clock,
      deliveryLog: new DeliveryLog(clock, pino({ base: null, level: 'debug', timestamp: false }, { write })),
      hooks: hooks ?? { posted: (meaning) => void this.told.push(`hook: ${meaning}`) },
      addresses: {
        of: () => world.address,
        get byInstrumentation() {
          return world.byInstrumentation;
        },
      },
      faults,
      schedule,
      size,
      answers,
      backfill,
      effects: { meet: async (delivery: BatchDelivery, met: Outcome) => this.meet(delivery, met) } as never,
      options,
      signal: stop.signal,
      wake: () => {},
    });
  }

  meet(delivery: BatchDelivery, met: Outcome): void {
    this.told.push(met);
    const known = { isEveryones: () => false, isAssetHeld: () => false } as unknown as Known;
    delivery.state = decide(delivery, met, known).state;
  }

  recall(): void {
    for (const delivery of this.schedule.deliveries)
      delivery.state = decide(delivery, { kind: 'recall' }, {} as Known).state;
  }

  /** Of what was told since it was last asked. */
  heard(): unknown[] {
    return this.told.splice(0);
  }

  /** All that is told until the decision is done, which takes so long. */
  async perform(decision: PostDecision, ms = 1_000): Promise<unknown[]> {
    const done = this.sender.perform(decision);
    await this.clock.advance(ms);
    await done;
    return this.heard();
  }
}

export type Post = PostDecision & { do: 'post' };
export const decision = (kind: Post['kind'], take: Partial<TakeRequest> = {}, facts: Partial<Post> = {}): Post => ({
  do: 'post',
  kind,
  take: { asset: 7, lane: kind === 'live' ? 'live' : 'backlog', maxValues: 20, maxBytes: 0, ...take },
  trial: false,
  competed: false,
  ...facts,
});
export const LIVE = decision('live', { alongValues: 5 });
export const BACKLOG = decision('backlog');
export const PROBE: ProbeView = { asset: 7, onlySeries: [1], maxValues: 1 };
export const kinds = (heard: unknown[]) => heard.flatMap((one) => (one as { kind?: string }).kind ?? []);
