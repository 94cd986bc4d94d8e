/** Data for the page: built files, history, and the routes below `/live/`. */
import { execFile } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { TagferryError } from '../base/errors.ts';
import { PageFiles } from '../base/inbound/page-files.ts';
import { BUILT_PAGE } from '../base/installation.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Tags } from '../config/tags.ts';
import { Sampler, type Standing } from '../ops/live/history.ts';
import { RecentEvents } from '../ops/live/recent-events.ts';
import { TagTable } from '../ops/live/tag-table.ts';
import type { GatewayZone, Views } from '../ops/live/views.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { LiveRequest, LiveRoutes } from '../ops/ops-server.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { SeriesNames } from '../sources/intake/series-names.ts';
import { fillValuesPath } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { SourcesFlow } from './sources-flow.ts';

export interface LiveFlowOptions {
  version: string;
  status(): Promise<StatusReport>;
  /** Refreshes the quota report if it is due. */
  refreshQuota(): Promise<void>;
  standing(): Standing;
  buffer: BufferFlow;
  events: EventsFlow;
  metrics: Metrics;
  sources: SourcesFlow;
  uplink: Uplink;
  /** Tags in use. */
  tags(): Tags;
  /** VALUES_PATH. */
  valuesPath(): string;
  recentLines: RecentLines | undefined;
  /** Configuration folder. */
  directory: string | undefined;
  environment: NodeJS.ProcessEnv;
  clock: Clock;
}

const MAX_OBJECTS = 2_000;
const MAX_QUARANTINE_ROWS = 200;
/** Maximum number of log lines in a response. */
const MAX_LINES = 200;

export class LiveFlow {
  readonly page = new PageFiles(BUILT_PAGE);
  readonly sampler: Sampler;
  readonly routes: LiveRoutes;
  readonly #options: LiveFlowOptions;
  /** Random ID of this process, which is part of each cursor. */
  readonly #boot: string;
  readonly #table: TagTable;
  readonly #events: RecentEvents;
  /** Series with quarantined values, read again when the number of values changes. */
  #quarantined: { count: number; series: Promise<ReadonlySet<number>> } | undefined;

  constructor(options: LiveFlowOptions) {
    const { standing, buffer, events, sources, tags, uplink, valuesPath, clock } = options;
    this.#options = options;
    this.#boot = Math.floor(clock.random() * 2 ** 48).toString(36);
    this.sampler = new Sampler(standing, clock);
    this.#events = new RecentEvents({ inbox: buffer.inbox, outputs: events.outputs });
    this.#table = new TagTable({
      tags,
      readings: sources.readings,
      seriesOf: (tag, value) => sources.intake.seriesIfOpen(tag, value),
      isAssetHeld: (asset) => events.holds.isHeld(asset),
      heldSeries: () => events.holds.heldSeries(),
      refusedSeries: () => uplink.snapshot().waitingIds,
      quarantinedSeries: () => this.#quarantinedSeries(),
      pathOf: ({ asset, instrumentation }) => fillValuesPath(valuesPath(), asset, instrumentation),
      clock,
    });
    this.routes = {
      now: { sight: 'status', answer: (request) => this.#now(request) },
      history: { sight: 'status', answer: (request) => this.#history(request) },
      tags: { sight: 'status', answer: (request) => this.#tags(request) },
      tag: { sight: 'status', answer: (request) => this.#tag(request) },
      held: { sight: 'status', answer: () => this.#held() },
      events: { sight: 'all', answer: () => this.#recentEvents() },
      assets: { sight: 'all', answer: () => buffer.access.list({ limit: MAX_OBJECTS }) },
      log: { sight: 'all', answer: (request) => this.#log(request) },
      doctor: { sight: 'all', answer: () => this.#doctor() },
    };
  }

  async #now({ sight }: LiveRequest): Promise<Views['now']> {
    const { version, status, refreshQuota, clock } = this.#options;
    void refreshQuota();
    const report = await status();
    const atMs = clock.wallMs();
    const monotonicMs = Math.round(clock.monotonicMs());
    return {
      version,
      gateway: hostname(),
      sight,
      zone: gatewayZone(atMs),
      clock: { atMs, monotonicMs },
      status: report,
    };
  }

  #history({ after }: LiveRequest): Views['history'] {
    const { history } = this.sampler;
    const [second] = this.#positionOf(after);
    const rest = second === undefined ? undefined : history.since(second);
    const next = this.#cursorOf([history.second]);
    return { next, whole: rest === undefined, more: false, ...(rest ?? history.all()) };
  }

  async #tags({ after }: LiveRequest): Promise<Views['tags']> {
    const { next, ...batch } = await this.#table.batch(this.#positionOf(after));
    return { next: this.#cursorOf(next), ...batch };
  }

  async #tag({ after, of }: LiveRequest): Promise<Views['tag'] | undefined> {
    const [sinceMs] = this.#positionOf(after);
    const tag = await this.#table.tag(of ?? '', sinceMs ?? 0);
    // The current second can receive more readings.
    const next = this.#cursorOf([Math.floor(this.#options.clock.monotonicMs() / 1_000) * 1_000]);
    return tag && { next, whole: sinceMs === undefined, more: false, ...tag };
  }

  /** Returns the quarantined values with the platform messages. Held values are part of the status. */
  async #held(): Promise<Views['held']> {
    const { facts, operator } = this.#options.buffer;
    const page = { after: 0, limit: MAX_QUARANTINE_ROWS + 1 };
    const rows = facts.quarantined === 0 ? [] : await operator.showQuarantine(page);
    const names = new SeriesNames(this.#options.tags().tags);
    const quarantine = rows
      .slice(0, MAX_QUARANTINE_ROWS)
      .map(({ series, count, status, message, atMs, timeMs, value }) => ({
        name: this.#nameOf(series, names),
        values: count,
        status,
        message,
        refusedAtMs: atMs,
        first: timeMs.map((each, at) => ({ timeAtMs: each, value: value[at]! })),
      }));
    return { quarantine, isMore: rows.length > MAX_QUARANTINE_ROWS };
  }

  async #recentEvents(): Promise<Views['events']> {
    const { events, metrics } = this.#options;
    return {
      events: await this.#events.list(),
      rejected: Object.fromEntries(metrics.eventsRejected.values.map(({ labels, value }) => [labels.reason, value])),
      received: metrics.eventsReceived.values.reduce((sum, { value }) => sum + value, 0),
      deliveries: events.deliveries.recent(),
    };
  }

  #log({ after }: LiveRequest): Views['log'] | undefined {
    const [line] = this.#positionOf(after);
    const rest = this.#options.recentLines?.since(line ?? 0);
    if (!rest) return undefined;
    const lines = rest.lines.slice(0, MAX_LINES).map((text) => JSON.parse(text) as Record<string, unknown>);
    const left = rest.lines.length - lines.length;
    const missed = line === undefined ? 0 : rest.missed;
    return { next: this.#cursorOf([rest.next - left]), whole: line === undefined, more: left > 0, missed, lines };
  }

  async #doctor(): Promise<Views['doctor']> {
    const { directory, environment, clock } = this.#options;
    const checks = await runDoctor(directory, environment);
    return { atMs: clock.wallMs(), checks };
  }

  #nameOf(id: number, names: SeriesNames): string {
    const series = this.#options.buffer.catalogue.get(id);
    return series ? `${names.tagOf(series) ?? `asset ${series.asset}`} ${series.key}` : `series ${id}`;
  }

  #quarantinedSeries(): Promise<ReadonlySet<number>> {
    const { facts, operator } = this.#options.buffer;
    const count = facts.quarantined;
    if (this.#quarantined?.count !== count) {
      const series = operator.countQuarantine().then((found) => new Set(found.series.map((row) => row.series)));
      series.catch(() => {
        this.#quarantined = undefined;
      });
      this.#quarantined = { count, series };
    }
    return this.#quarantined.series;
  }

  #cursorOf(position: readonly number[]): string {
    return [this.#boot, ...position].join('.');
  }

  /** Returns the numbers in a cursor; none if it belongs to another process. */
  #positionOf(cursor: string | undefined): number[] {
    const [boot, ...texts] = (cursor ?? '').split('.');
    const position = texts.map(Number);
    const isValid = position.every((each) => Number.isSafeInteger(each) && each >= 0);
    return boot === this.#boot && isValid ? position : [];
  }
}

/**
 * Returns the gateway's time zone. Avoids `Intl`, whose data takes up 9 MB of memory; the browser requires only the
 * name.
 */
function gatewayZone(wallMs: number): GatewayZone {
  return { name: zoneName(), offsetMinutes: -new Date(wallMs).getTimezoneOffset() };
}

function zoneName(): string | null {
  const { TZ } = process.env;
  if (TZ !== undefined) return /^:?([A-Za-z_]+(?:\/[\w+-]+)*)$/.exec(TZ)?.[1] ?? null;
  try {
    return /zoneinfo\/(?:posix\/)?(.+)$/.exec(readlinkSync('/etc/localtime'))?.[1] ?? null;
  } catch {
    return null;
  }
}

const DOCTOR_TIMEOUT_MS = 60_000;
const DOCTOR_MAX_OUTPUT = 1024 * 1024;
/** Variables set by systemd only for the agent. */
const AGENT_VARIABLES = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID', 'LISTEN_FDS', 'LISTEN_PID'];

/**
 * Runs `tagferry doctor --inward` in a separate process, which does not block the agent and frees its memory on exit.
 * Does not connect to other hosts.
 */
function runDoctor(directory: string | undefined, environment: NodeJS.ProcessEnv): Promise<Views['doctor']['checks']> {
  const config = directory === undefined ? [] : ['--config', directory];
  const args = [...process.execArgv, process.argv[1]!, 'doctor', '--inward', '--json', ...config];
  const env = Object.fromEntries(Object.entries(environment).filter(([name]) => !AGENT_VARIABLES.includes(name)));
  const options = { env, timeout: DOCTOR_TIMEOUT_MS, maxBuffer: DOCTOR_MAX_OUTPUT, killSignal: 'SIGKILL' } as const;
  return new Promise((resolve, reject) => {
    // Exit code 1 means that a check failed.
    execFile(process.execPath, args, options, (error, stdout) => {
      try {
        resolve((JSON.parse(stdout) as { checks: Views['doctor']['checks'] }).checks);
      } catch (unreadable) {
        reject(new TagferryError('the doctor returned no result', { code: 'ops.doctor', cause: error ?? unreadable }));
      }
    });
  });
}
