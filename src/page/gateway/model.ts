/**
 * What the page knows of the gateway, and tells those who show it. Everything stands in this tab's memory: a reload asks anew, the token
 * too, unless it stands in the address.
 */
import type { Hello, LiveEvents } from '../../ops/live/live-events.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { Changes } from '../stream/changes.ts';
import { pageMs } from '../stream/clock.ts';
import { type LinkState, LiveLink } from '../stream/live-link.ts';
import { timeIn } from './gateway-time.ts';
import { KnownEvents } from './known-events.ts';
import { KnownHistory } from './known-history.ts';
import { KnownLog } from './known-log.ts';
import { KnownTags, KnownTrace } from './known-tags.ts';

/** What is looked at whatever the view: the history goes on behind it. */
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
  /** The gateway's clocks at a moment of this page's own: this machine's clock may say what it likes. */
  #heard: { atMs: number; monotonicMs: number; pageMs: number } | undefined;
  readonly #changes = new Changes();

  constructor(token: string | undefined) {
    this.#token = token;
    this.#link = new LiveLink<LiveEvents>({
      address: () => `live/stream?of=${this.#subjects.join(',')}`,
      token: () => this.#token,
      received: (name, data) => this.#received(name, data),
      changed: () => this.#changes.tell(),
    });
  }

  start(): void {
    this.#link.start();
  }

  get link(): LinkState {
    return this.#link.state;
  }

  /** What the view shows, beside what is always looked at. What is looked at no more is forgotten. */
  look(...subjects: string[]): void {
    const wanted = [...ALWAYS, ...subjects];
    if (wanted.join() === this.#subjects.join()) return;
    this.#subjects = wanted;
    if (!subjects.includes('tags')) this.tags = new KnownTags();
    if (!subjects.includes('log')) this.log = undefined;
    if (!subjects.includes('events')) this.events = undefined;
    if (!subjects.includes('deliveries')) this.deliveries = undefined;
    if (!subjects.includes('assets')) this.assets = undefined;
    if (!subjects.includes('held')) this.held = undefined;
    this.#link.start();
  }

  /** A person typed it. */
  setToken(token: string): void {
    this.#token = token;
    this.#link.state = { kind: 'connecting' };
    this.#link.start();
    this.#changes.tell();
  }

  get hasToken(): boolean {
    return this.#token !== undefined;
  }

  /** Asks the gateway for something once. */
  async fetch(path: string, signal?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` };
    return await fetch(path, { headers, cache: 'no-store', credentials: 'omit', ...(signal ? { signal } : {}) });
  }

  /** The gateway's wall clock now; `undefined` before it spoke. */
  get gatewayMs(): number | undefined {
    return this.#heard && this.#heard.atMs + pageMs() - this.#heard.pageMs;
  }

  /** The wall clock of a monotonic time, by what both are now. */
  readonly wallMs = (monotonicMs: number): number =>
    this.#heard ? this.#heard.atMs - (this.#heard.monotonicMs - monotonicMs) : Number.NaN;

  /** A moment of the gateway's wall clock, as its people have it. */
  readonly time = (atMs: number): string => timeIn(this.hello?.zone ?? { name: null, offsetMinutes: 0 }, atMs);

  /** Calls after something is new, once for all that came together; returns what ends it. */
  listen(listener: () => void): () => void {
    return this.#changes.listen(listener);
  }

  readonly #take: { [Name in keyof LiveEvents]: (data: LiveEvents[Name]) => void } = {
    hello: (hello) => {
      this.hello = hello;
    },
    tick: (tick) => {
      this.#heard = { ...tick, pageMs: pageMs() };
    },
    now: (now) => {
      this.now = now;
    },
    history: (rows) => this.history.take(rows),
    tags: (rows) => this.tags.takeRows(rows),
    readings: (readings) => this.tags.takeReadings(readings),
    tag: (points) => this.trace.take(points),
    events: (events) => {
      this.events ??= new KnownEvents();
      this.events.take(events);
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
      this.log.take(lines);
    },
  };

  #received<Name extends keyof LiveEvents>(name: Name, data: LiveEvents[Name]): void {
    // One that this page does not know comes from a newer gateway.
    this.#take[name]?.(data);
    this.#changes.tell();
  }
}
