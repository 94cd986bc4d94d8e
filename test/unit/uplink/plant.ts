import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { pino } from 'pino';
import type { Clock } from '../../../src/base/clock.ts';
import { PlatformError } from '../../../src/base/errors.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import type { OutgoingBuffer } from '../../../src/buffer/client/lanes.ts';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { RequestBudget } from '../../../src/platform/request-budget.ts';
import type { AccessPort, Probe, ValuesAnswer, ValuesCall, ValuesClient } from '../../../src/uplink/ports.ts';
import { Uplink, type UplinkOptions } from '../../../src/uplink/uplink.ts';
import { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { requestBody } from '../doubles/request-body.ts';

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

/** HTTP platform on loopback. */
export class LoopbackPlatform implements ValuesClient {
  readonly ledger = new Ledger();
  #server: Server | undefined;
  #port = 0;

  async open(): Promise<void> {
    const server = createServer((request, response) => void this.#serve(request, response));
    this.#port ||= await freePort();
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
  }

  /** Closes the port, so that connections are refused. */
  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!server) return;
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await requestBody(request);
    if (!body) return;
    const reply = await this.ledger.answer(request.url ?? '', body, performance.now());
    if (!reply) return void request.socket.destroy();
    response.writeHead(reply.status, reply.headers ?? {}).end(reply.body);
  }

  async request(call: ValuesCall): Promise<ValuesAnswer> {
    try {
      const answer = await fetch(`http://127.0.0.1:${this.#port}${call.path}`, {
        method: call.method,
        body: call.body.slice(),
        headers: call.headers,
        signal: call.signal,
      });
      const text = await answer.text();
      return { status: answer.status, header: (name) => answer.headers.get(name) ?? undefined, text, redact: String };
    } catch (error) {
      const cause = (error as { cause?: { code?: string } }).cause?.code;
      const code = cause === 'ECONNREFUSED' ? 'platform.connection_refused' : 'platform.connection_reset';
      throw new PlatformError('no answer', { code, retryable: true, cause: error });
    }
  }
}

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
    try {
      const error = this.failing?.();
      if (error) throw error;
      await this.#clock.sleep(this.latencyMs, call.signal);
      const hung = new Promise<never>((_, reject) => {
        call.signal.addEventListener('abort', () => reject(call.signal.reason), { once: true });
      });
      const reply = await Promise.race([this.ledger.answer(call.path, call.body, atMs), hung]);
      if (!reply) throw new PlatformError('reset', { code: 'platform.connection_reset', retryable: true });
      return { status: reply.status, header: (name) => reply.headers?.[name], text: reply.body ?? '', redact: String };
    } finally {
      this.inFlight--;
    }
  }
}

/** Holds of assets, in memory. */
export class MemoryAccess implements AccessPort {
  readonly held = new Map<number, number>();
  readonly refusals: { asset: number; status: number }[] = [];
  readonly deliveries: number[] = [];
  readonly #listeners = new Set<() => void>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  isHeld(asset: number): boolean {
    return this.held.has(asset);
  }

  heldSeries(): readonly number[] {
    return [];
  }

  dueProbes(nowMs: number): readonly Probe[] {
    return [...this.held].filter(([, atMs]) => atMs <= nowMs).map(([asset]) => ({ asset }));
  }

  nextProbeAtMs(): number | undefined {
    return this.held.size === 0 ? undefined : Math.min(...this.held.values());
  }

  probed({ asset }: Probe): void {
    if (this.held.has(asset)) this.held.set(asset, this.#clock.monotonicMs() + 120_000);
  }

  unanswered({ asset }: Probe): void {
    if (this.held.has(asset)) this.held.set(asset, this.#clock.monotonicMs());
  }

  async refused(asset: number, status: 403 | 404): Promise<void> {
    this.refusals.push({ asset, status });
    this.held.set(asset, this.#clock.monotonicMs() + 120_000);
    this.#changed();
  }

  async delivered(asset: number): Promise<void> {
    this.deliveries.push(asset);
    this.held.delete(asset);
    this.#changed();
  }

  async foundNothing(): Promise<void> {}

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
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

/** Uplink with its buffer, budget, holds and log. */
export class Plant {
  readonly clock: Clock;
  readonly buffer = new MemoryBuffer();
  readonly access: MemoryAccess;
  readonly budget: RequestBudget;
  readonly uplink: Uplink;
  readonly counts = { delivered: 0, quarantined: 0, backs: 0 };
  /** Log lines, at `info` and above by default. */
  readonly logged: { level: number; event: string; msg: string; [member: string]: unknown }[] = [];
  accepted = 0;

  constructor(
    clock: Clock,
    client: ValuesClient,
    options: Partial<UplinkOptions> = {},
    requestsPerMinute = 0,
    outgoing?: OutgoingBuffer,
    holds?: AccessPort,
    level: 'info' | 'debug' = 'info',
  ) {
    this.clock = clock;
    this.access = new MemoryAccess(clock);
    this.budget = new RequestBudget(clock, { requestsPerMinute, requestsPerDay: 0 });
    const hooks = {
      delivered: (values: number) => {
        this.counts.delivered += values;
      },
      quarantined: (_reason: string, values: number) => {
        this.counts.quarantined += values;
      },
    };
    const { budget } = this;
    const access = holds ?? this.access;
    const platformClock = new PlatformClock(clock);
    // The client pauses the budget after a 429.
    const resting: ValuesClient = {
      request: async (call) => {
        const answer = await client.request(call);
        if (answer.status === 429) budget.restUntil(clock.monotonicMs() + platformClock.restMs(answer));
        return answer;
      },
    };
    const buffer = outgoing ?? this.buffer;
    const of = ({ asset }: { asset: number }) => ({ path: `/v1/assets/${asset}/values` });
    const addresses = { byInstrumentation: false, of };
    const timestamp = () => `,"atMs":${clock.monotonicMs()}`;
    const write = (line: string) => void this.logged.push(JSON.parse(line));
    const log = pino({ base: null, level, timestamp }, { write });
    const parts = { buffer, client: resting, budget, access, clock, log, addresses, hooks };
    this.uplink = new Uplink(parts, { ...OPTIONS, ...options });
    this.uplink.onRestored(() => {
      this.counts.backs++;
    });
  }

  /** Accepts `count` values of one series and returns their numbers. */
  accept(asset: number, series: number, count = 1, timeMs = () => this.clock.wallMs()): number[] {
    const acceptedMs = this.clock.monotonicMs();
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
