/** What the page shows: the files that were built, the history, and the stream with its topics. */
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { PageFiles } from '../base/inbound/page-files.ts';
import { BUILT_PAGES } from '../base/installation.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import { type AssetsFeedParts, assetsFeed } from '../ops/live/assets-feed.ts';
import { deliveriesFeed } from '../ops/live/deliveries-feed.ts';
import { type DoctorLine, DoctorRun } from '../ops/live/doctor-run.ts';
import { type EventsFeedParts, eventsFeed } from '../ops/live/events-feed.ts';
import { gatewayZone } from '../ops/live/gateway-zone.ts';
import { type HeldFeedParts, heldFeed } from '../ops/live/held-feed.ts';
import { historyFeed } from '../ops/live/history-feed.ts';
import type { Topic } from '../ops/live/live-events.ts';
import { type Feed, frame, LiveStream } from '../ops/live/live-stream.ts';
import { logFeed } from '../ops/live/log-feed.ts';
import { Sampler, type Standing } from '../ops/live/sampler.ts';
import { type TagFeedParts, tagFeed, tagsFeed } from '../ops/live/tag-feeds.ts';
import { TagTable, type TagTableParts } from '../ops/live/tag-table.ts';
import type { StatusReport } from '../ops/status-report.ts';
import type { RecentDeliveries } from '../webhook/deliveries.ts';

export interface LiveFlowOptions {
  version: string;
  startedWallMs: number;
  status(): Promise<StatusReport>;
  /** Asks for what counts against the quota, where that is due. */
  refreshQuota(): Promise<void>;
  standing(): Standing;
  tags: Omit<TagTableParts, 'clock'> & Pick<TagFeedParts, 'pathOf'>;
  events: EventsFeedParts;
  /** Deliveries of the webhook as last read. */
  deliveries(): RecentDeliveries;
  assets: AssetsFeedParts;
  held: HeldFeedParts;
  recentLines: RecentLines | undefined;
  runDoctor(): Promise<DoctorLine[]>;
  clock: Clock;
  log: Logger;
}

export class LiveFlow {
  readonly page = new PageFiles(new URL('gateway/', BUILT_PAGES));
  readonly live: LiveStream;
  readonly doctor: DoctorRun;
  readonly sampler: Sampler;
  readonly #options: LiveFlowOptions;
  #table: TagTable | undefined;

  constructor(options: LiveFlowOptions) {
    const { version, startedWallMs, standing, recentLines, clock, log } = options;
    this.#options = options;
    this.doctor = new DoctorRun(options.runDoctor, clock);
    this.sampler = new Sampler(standing, clock);
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
    const { assets, events, held, recentLines, tags, clock } = this.#options;
    switch (topic) {
      case 'now':
        return nowFeed(this.#options);
      case 'history':
        return historyFeed(this.sampler.history);
      case 'tags':
        return { ...tagsFeed(this.#tagTable()), end: () => this.#forgetTable() };
      case 'tag':
        return tagFeed(Number(of), { ...tags, table: this.#tagTable(), clock });
      case 'events':
        return eventsFeed(events);
      case 'deliveries':
        return deliveriesFeed(() => this.#options.deliveries());
      case 'assets':
        return assetsFeed(assets);
      case 'held':
        return heldFeed(held);
      case 'log':
        return recentLines && logFeed(recentLines);
    }
  }

  #tagTable(): TagTable {
    this.#table ??= new TagTable({ ...this.#options.tags, clock: this.#options.clock });
    return this.#table;
  }

  #forgetTable(): void {
    this.#table = undefined;
  }
}

/** The status, as `/status` shows it. */
function nowFeed({ status, refreshQuota }: Pick<LiveFlowOptions, 'status' | 'refreshQuota'>): Feed {
  const now = async () => [frame('now', await status())];
  return {
    begin: () => {
      void refreshQuota();
      return now();
    },
    next: now,
  };
}
