/**
 * Page state, in this tab's memory. After a reload, the page asks for the token again, unless the address contains it.
 */
import type { Hello, LiveEvents } from '../../ops/live/live-events.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { Changes } from '../stream/changes.ts';
import { type LinkState, LiveLink, pageMs } from '../stream/live-link.ts';
import { timeIn } from './gateway-time.ts';
import { KnownEvents, KnownHistory, KnownLog } from './known-lists.ts';
import { KnownTags, KnownTrace } from './known-tags.ts';

/** Subjects to which every view subscribes, so that the history has no gaps. */
const ALWAYS = ['now', 'history'];

export class Model {
  hello: Hello | undefined;
  now: StatusReport | undefined;
  readonly history = new KnownHistory();
  tags = new KnownTags();
  readonly trace = new KnownTrace();
  events: KnownEvents | undefined;
  deliveries: LiveEvents['deliveries'] | undefined;
  assets: LiveEvents['assets'] | undefined;
  held: LiveEvents['held'] | undefined;
  log: KnownLog | undefined;
  readonly #link: LiveLink<LiveEvents>;
  #token: string | undefined;
  #subjects: readonly string[] = ALWAYS;
  /** The gateway's clocks at a given time on this page's clock, because this machine's clock can be wrong. */
  #synced: { atMs: number; monotonicMs: number; pageMs: number } | undefined;
  readonly #changes = new Changes();

  constructor(token: string | undefined) {
    this.#token = token;
    this.#link = new LiveLink<LiveEvents>({
      address: () => `live/stream?of=${this.#subjects.join(',')}`,
      token: () => this.#token,
      received: (name, data) => this.#received(name, data),
      changed: () => this.#changes.notify(),
    });
  }

  start(): void {
    this.#link.start();
  }

  get link(): LinkState {
    return this.#link.state;
  }

  /** Selects the subjects of a view and discards the data of all others. */
  select(...subjects: string[]): void {
    const selected = [...ALWAYS, ...subjects];
    if (selected.join() === this.#subjects.join()) return;
    this.#subjects = selected;
    if (!subjects.includes('tags')) this.tags = new KnownTags();
    if (!subjects.includes('log')) this.log = undefined;
    if (!subjects.includes('events')) this.events = undefined;
    if (!subjects.includes('deliveries')) this.deliveries = undefined;
    if (!subjects.includes('assets')) this.assets = undefined;
    if (!subjects.includes('held')) this.held = undefined;
    this.#link.start();
  }

  /** Reconnects with a token that the user entered. */
  setToken(token: string): void {
    this.#token = token;
    this.#link.state = { kind: 'connecting' };
    this.#link.start();
    this.#changes.notify();
  }

  get hasToken(): boolean {
    return this.#token !== undefined;
  }

  async fetch(path: string, signal?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` };
    return await fetch(path, { headers, cache: 'no-store', credentials: 'omit', ...(signal ? { signal } : {}) });
  }

  /** The gateway's current wall-clock time; `undefined` before the first message. */
  get gatewayMs(): number | undefined {
    return this.#synced && this.#synced.atMs + pageMs() - this.#synced.pageMs;
  }

  /** Converts a gateway monotonic time to the gateway's wall-clock time. */
  readonly wallMs = (monotonicMs: number): number =>
    this.#synced ? this.#synced.atMs - (this.#synced.monotonicMs - monotonicMs) : Number.NaN;

  /** Formats a time in the gateway's time zone. */
  readonly time = (atMs: number): string => timeIn(this.hello?.zone ?? { name: null, offsetMinutes: 0 }, atMs);

  /** Calls the listener after changes, once per batch. Returns a function that removes the listener. */
  listen(listener: () => void): () => void {
    return this.#changes.listen(listener);
  }

  readonly #handlers: { [Name in keyof LiveEvents]: (data: LiveEvents[Name]) => void } = {
    hello: (hello) => {
      this.hello = hello;
    },
    tick: (tick) => {
      this.#synced = { ...tick, pageMs: pageMs() };
    },
    now: (now) => {
      this.now = now;
    },
    history: (rows) => this.history.update(rows),
    tags: (rows) => this.tags.updateRows(rows),
    readings: (readings) => this.tags.updateReadings(readings),
    tag: (points) => this.trace.update(points),
    events: (events) => {
      this.events ??= new KnownEvents();
      this.events.update(events);
    },
    deliveries: (deliveries) => {
      this.deliveries = deliveries;
    },
    assets: (assets) => {
      this.assets = assets;
    },
    held: (held) => {
      this.held = held;
    },
    log: (lines) => {
      this.log ??= new KnownLog();
      this.log.update(lines);
    },
  };

  #received<Name extends keyof LiveEvents>(name: Name, data: LiveEvents[Name]): void {
    // A newer gateway can send unknown messages.
    this.#handlers[name]?.(data);
    this.#changes.notify();
  }
}
