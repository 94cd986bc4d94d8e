/** Data for the page: built files, history and the stream with its topics. */
import { execFile } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { TagferryError } from '../base/errors.ts';
import { PageFiles } from '../base/inbound/page-files.ts';
import { BUILT_PAGES } from '../base/installation.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Tag, Tags } from '../config/tags.ts';
import { type DoctorLine, DoctorRun } from '../ops/live/doctor-run.ts';
import { eventsFeed } from '../ops/live/events-feed.ts';
import { assetsFeed, deliveriesFeed, heldFeed, historyFeed, logFeed, QuarantinedSeries } from '../ops/live/feeds.ts';
import { Sampler, type Standing } from '../ops/live/history.ts';
import type { GatewayZone, Topic } from '../ops/live/live-events.ts';
import { type Feed, frame, LiveStream } from '../ops/live/live-stream.ts';
import { TagTable, tagFeed, tagsFeed } from '../ops/live/tag-table.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { SeriesNames } from '../sources/intake/series-names.ts';
import { fillValuesPath } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { SourcesFlow } from './sources-flow.ts';

export interface LiveFlowOptions {
  version: string;
  startedWallMs: number;
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
  log: Logger;
}

export class LiveFlow {
  readonly page = new PageFiles(new URL('gateway/', BUILT_PAGES));
  readonly live: LiveStream;
  readonly doctor: DoctorRun;
  readonly sampler: Sampler;
  readonly #options: LiveFlowOptions;
  readonly #quarantined: QuarantinedSeries;
  #names: { tags: Tags; names: SeriesNames } | undefined;
  /** Shared by all viewers; recreated after the last viewer disconnects. */
  #table: TagTable | undefined;

  constructor(options: LiveFlowOptions) {
    const { version, startedWallMs, standing, buffer, recentLines, directory, environment, clock, log } = options;
    this.#options = options;
    this.doctor = new DoctorRun(() => runDoctor(directory, environment), clock);
    this.sampler = new Sampler(standing, clock);
    this.#quarantined = new QuarantinedSeries(
      () => buffer.facts.quarantined,
      async () => (await buffer.operator.countQuarantine()).series.map(({ series }) => series),
    );
    const { history } = this.sampler;
    this.live = new LiveStream({
      feed: (topic, of) => this.#feed(topic, of),
      hello: () => ({ version, gateway: hostname(), startedWallMs, zone: gatewayZone(clock.wallMs()) }),
      position: () => ({ second: history.second, line: recentLines?.written ?? 0 }),
      clock,
      log,
    });
  }

  #feed(topic: Topic, of: string | undefined): Feed | undefined {
    const { buffer, events, recentLines } = this.#options;
    switch (topic) {
      case 'now':
        return this.#nowFeed();
      case 'history':
        return historyFeed(this.sampler.history);
      case 'tags':
        return {
          ...tagsFeed(this.#tagTable()),
          end: () => {
            this.#table = undefined;
          },
        };
      case 'tag':
        return this.#tagFeed(Number(of));
      case 'events':
        return this.#eventsFeed();
      case 'deliveries':
        return deliveriesFeed(() => events.deliveries.recent());
      case 'assets':
        return assetsFeed(buffer.access);
      case 'held':
        return heldFeed({
          quarantined: () => buffer.facts.quarantined,
          show: (page) => buffer.operator.showQuarantine(page),
          nameOf: (id) => this.#nameOf(id),
        });
      case 'log':
        return recentLines && logFeed(recentLines);
    }
  }

  /** Sends the content of `/status`. */
  #nowFeed(): Feed {
    const { status, refreshQuota } = this.#options;
    const next = async () => [frame('now', await status())];
    return {
      begin: () => {
        void refreshQuota();
        return next();
      },
      next,
    };
  }

  #tagFeed(place: number): Feed {
    const { sources, valuesPath, clock } = this.#options;
    const pathOf = ({ asset, instrumentation }: Tag) => fillValuesPath(valuesPath(), asset, instrumentation);
    return tagFeed(place, { table: this.#tagTable(), readings: sources.readings, pathOf, clock });
  }

  #tagTable(): TagTable {
    const { events, sources, tags, uplink, clock } = this.#options;
    this.#table ??= new TagTable({
      tags,
      readings: sources.readings,
      seriesOf: (tag, value) => sources.intake.seriesIfOpen(tag, value),
      isAssetHeld: (asset) => events.holds.isHeld(asset),
      heldSeries: () => events.holds.heldSeries(),
      refusedSeries: () => uplink.snapshot().waitingIds,
      quarantinedSeries: () => this.#quarantined.known,
      clock,
    });
    return this.#table;
  }

  #eventsFeed(): Feed {
    const { buffer, events, metrics } = this.#options;
    return eventsFeed({
      inbox: buffer.inbox,
      outputs: events.outputs,
      rejected: () =>
        Object.fromEntries(metrics.eventsRejected.values.map(({ labels, value }) => [labels.reason, value])),
      received: () => metrics.eventsReceived.values.reduce((sum, { value }) => sum + value, 0),
    });
  }

  #nameOf(id: number): string {
    const { buffer, tags } = this.#options;
    const series = buffer.catalogue.get(id);
    if (!series) return `series ${id}`;
    if (this.#names?.tags !== tags()) this.#names = { tags: tags(), names: new SeriesNames(tags().tags) };
    return `${this.#names.names.tagOf(series) ?? `asset ${series.asset}`} ${series.key}`;
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
function runDoctor(directory: string | undefined, environment: NodeJS.ProcessEnv): Promise<DoctorLine[]> {
  const config = directory === undefined ? [] : ['--config', directory];
  const args = [...process.execArgv, process.argv[1]!, 'doctor', '--inward', '--json', ...config];
  const env = Object.fromEntries(Object.entries(environment).filter(([name]) => !AGENT_VARIABLES.includes(name)));
  const options = { env, timeout: DOCTOR_TIMEOUT_MS, maxBuffer: DOCTOR_MAX_OUTPUT, killSignal: 'SIGKILL' } as const;
  return new Promise((resolve, reject) => {
    // Exit code 1 means that a check failed.
    execFile(process.execPath, args, options, (error, stdout) => {
      try {
        resolve((JSON.parse(stdout) as { checks: DoctorLine[] }).checks);
      } catch (unreadable) {
        reject(new TagferryError('the doctor returned no result', { code: 'ops.doctor', cause: error ?? unreadable }));
      }
    });
  });
}
