import { pino } from 'pino';
import type { StoredHold } from '../../../src/access/access-table.ts';
import type { Clock } from '../../../src/base/clock.ts';
import { PlatformError } from '../../../src/base/errors.ts';
import type { OutgoingBuffer } from '../../../src/buffer/client/lanes.ts';
import type { Series } from '../../../src/buffer/series.ts';
import type { Tag } from '../../../src/config/tags.ts';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { RequestBudget } from '../../../src/platform/request-budget.ts';
import type { ValuesAnswer } from '../../../src/platform/response-meanings.ts';
import type { ValuesClient } from '../../../src/uplink/deliver.ts';
import { Holds } from '../../../src/uplink/holds.ts';
import { Uplink, type UplinkOptions } from '../../../src/uplink/uplink.ts';
import { MemoryBuffer } from '../doubles/memory-buffer.ts';

export interface Posted {
  asset: number;
  /** Values by series, in body order. */
  series: { series: number; data: { number: number; timeMs: number }[] }[];
  values: number;
  bytes: number;
  atMs: number;
}

export interface Reply {
  status: number;
  body?: string;
  headers?: Record<string, string>;
}

/** Returns the response to a post; `undefined` resets the connection. */
export type Answering = (post: Posted) => Reply | undefined | Promise<Reply | undefined>;

export const TAKEN: Reply = { status: 204 };

export function refusal(message = 'no such unit'): Reply {
  return { status: 400, body: JSON.stringify({ errors: [{ type: 'invalid', message, attribute: 'unit' }] }) };
}

/** Records posts and accepted values in order. */
export class Ledger {
  readonly posts: (Posted & { status: number })[] = [];
  readonly taken: { number: number; asset: number; series: number; timeMs: number }[] = [];
  answering: Answering;

  constructor(answering: Answering = () => TAKEN) {
    this.answering = answering;
  }

  async answer(path: string, body: Uint8Array, atMs: number): Promise<Reply | undefined> {
    const post = readPost(path, body, atMs);
    const reply = await this.answering(post);
    this.posts.push({ ...post, status: reply?.status ?? 0 });
    if (reply && reply.status < 300) {
      for (const { series, data } of post.series) {
        for (const value of data) this.taken.push({ ...value, asset: post.asset, series });
      }
    }
    return reply;
  }

  get numbers(): Set<number> {
    return new Set(this.taken.map((value) => value.number));
  }
}

function readPost(path: string, body: Uint8Array, atMs: number): Posted {
  const parsed = JSON.parse(new TextDecoder().decode(body)) as {
    values: { key: string; data: { timestamp: string; value: number }[] }[];
  };
  const series = parsed.values.map(({ key, data }) => ({
    series: Number(key.slice(1)),
    data: data.map(({ timestamp, value }) => ({ number: value, timeMs: Date.parse(timestamp) })),
  }));
  const values = series.reduce((sum, { data }) => sum + data.length, 0);
  return { asset: Number(/assets\/(\d+)\//.exec(path)?.[1]), series, values, bytes: body.length, atMs };
}

type ValuesCall = Parameters<ValuesClient['request']>[0];

/** Platform without a network, for tests with a manual clock. */
export class DirectPlatform implements ValuesClient {
  readonly ledger: Ledger;
  readonly #clock: Clock;
  /** Response time in milliseconds. */
  latencyMs = 20;
  /** Error to throw instead of a response. */
  failing: (() => PlatformError | undefined) | undefined;
  inFlight = 0;
  mostInFlight = 0;

  constructor(clock: Clock, answering?: Answering) {
    this.#clock = clock;
    this.ledger = new Ledger(answering);
  }

  async request(call: ValuesCall): Promise<ValuesAnswer> {
    this.inFlight++;
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight);
    const atMs = this.#clock.monotonicMs();
    let cancel = () => {};
    try {
      const error = this.failing?.();
      if (error) throw error;
      await this.#clock.sleep(this.latencyMs, call.signal);
      const hung = new Promise<never>((_, reject) => {
        call.signal?.addEventListener('abort', () => reject(call.signal?.reason), { once: true });
        const timeout = new PlatformError('timed out', { code: 'platform.timeout', retryable: true });
        cancel = this.#clock.after(call.deadlineMs!, () => reject(timeout));
      });
      const reply = await Promise.race([this.ledger.answer(call.path, call.body, atMs), hung]);
      if (!reply) throw new PlatformError('reset', { code: 'platform.connection_reset', retryable: true });
      return { status: reply.status, header: (name) => reply.headers?.[name], text: reply.body ?? '', redact: String };
    } finally {
      cancel();
      this.inFlight--;
    }
  }
}

export const OPTIONS: UplinkOptions = {
  postIntervalMs: 10_000,
  postMaxValues: 5_000,
  postMaxBytes: 480_000,
  success: [204],
  concurrency: 4,
  drainOrder: 'live-first',
  backfillValuesPerSecond: 0,
};

export interface PlantOptions {
  options?: Partial<UplinkOptions>;
  requestsPerMinute?: number;
  outgoing?: OutgoingBuffer;
  tags?: readonly Tag[];
  level?: 'info' | 'debug';
}

/** Uplink with its buffer, budget, holds and log. The key of a series is `s` and its number. */
export class Plant {
  readonly clock: Clock;
  readonly buffer = new MemoryBuffer();
  readonly budget: RequestBudget;
  readonly holds: Holds;
  readonly uplink: Uplink;
  readonly counts = { delivered: 0, quarantined: 0, backs: 0 };
  /** Log lines, at `info` and above by default. */
  readonly logged: { level: number; event: string; msg: string; [member: string]: unknown }[] = [];
  /** Holds on disk, by kind and ID. */
  readonly storedHolds = new Map<string, StoredHold>();
  readonly series = new Map<number, Series>();
  /** Changes the addresses, like a reload of VALUES_PATH. */
  addressVersion = 0;
  accepted = 0;

  constructor(clock: Clock, client: ValuesClient, more: PlantOptions = {}) {
    const { options = {}, requestsPerMinute = 0, outgoing, tags = [], level = 'info' } = more;
    this.clock = clock;
    this.budget = new RequestBudget(clock, { requestsPerMinute, requestsPerDay: 0 });
    const hooks = {
      delivered: (values: number) => {
        this.counts.delivered += values;
      },
      quarantined: (_reason: string, values: number) => {
        this.counts.quarantined += values;
      },
      restored: () => {
        this.counts.backs++;
      },
    };
    const { budget, series, storedHolds } = this;
    const platformClock = new PlatformClock(clock);
    // The client pauses the budget after a 429.
    const resting: ValuesClient = {
      request: async (call) => {
        const answer = await client.request(call);
        if (answer.status === 429) budget.refused(platformClock.closedMs(answer));
        return answer;
      },
    };
    const buffer = outgoing ?? this.buffer;
    const version = () => this.addressVersion;
    const addresses = {
      byInstrumentation: false,
      of: ({ asset }: { asset: number }) => ({ path: `/v1/assets/${asset}/values` }),
      get version() {
        return version();
      },
    };
    const timestamp = () => `,"atMs":${clock.monotonicMs()}`;
    const write = (line: string) => void this.logged.push(JSON.parse(line));
    const log = pino({ base: null, level, timestamp }, { write });
    this.holds = new Holds({
      store: {
        hold: async (hold) => void storedHolds.set(`${hold.kind} ${hold.id}`, hold),
        release: async ({ kind, id }) => void storedHolds.delete(`${kind} ${id}`),
      },
      tags,
      series: {
        get: (id) => series.get(id),
        ofAsset: (asset) => [...series.values()].filter((one) => one.asset === asset),
        ofInstrumentation: () => [],
      },
      lanes: () => buffer.lanes(),
      clock,
      logger: log,
    });
    const parts = { buffer, client: resting, budget, holds: this.holds, clock, log, addresses, hooks };
    this.uplink = new Uplink(parts, { ...OPTIONS, ...options });
  }

  /** Accepts `count` values of one series and returns their numbers. */
  accept(asset: number, series: number, count = 1, timeMs = () => this.clock.wallMs()): number[] {
    const acceptedMs = this.clock.monotonicMs();
    const rest = { group: undefined, unit: undefined, instrumentation: undefined };
    this.series.set(series, { id: series, asset, key: `s${series}`, ...rest });
    const values = Array.from({ length: count }, () => ({
      number: this.accepted++,
      asset,
      series,
      timeMs: timeMs(),
      acceptedMs,
    }));
    this.buffer.accept(values);
    return values.map((value) => value.number);
  }
}
