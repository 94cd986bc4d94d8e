import type { ObjectListing, ObjectQuery } from '../../access/access-table.ts';
import type { RecentLines } from '../../base/recent-lines.ts';
import type { QuarantinedValues } from '../../buffer/operator/requeueing.ts';
import type { RecentDeliveries } from '../../webhook/deliveries.ts';
import type { History } from './history.ts';
import { type Feed, frame } from './live-stream.ts';

export interface AssetsFeedParts {
  /** Returns a counter that is incremented with every change. */
  changes(): Promise<number>;
  list(query: ObjectQuery): Promise<ObjectListing>;
}

const ROWS = 2_000;
/**
 * Interval between checks, in seconds. Granting permission for a whole site causes thousands of events within a
 * minute.
 */
const LOOK_EVERY = 5;

/** Sends known assets, instrumentations and nodes, and sends them again after a change. */
export function assetsFeed({ changes, list }: AssetsFeedParts): Feed {
  let sent: number | undefined;
  let seconds = 0;
  const look = async () => {
    // Read the counter first, so that a change during the listing is sent at the next check.
    sent = await changes();
    return [frame('assets', await list({ limit: ROWS }))];
  };
  return {
    begin: look,
    async next() {
      seconds++;
      const isDue = seconds % LOOK_EVERY === 0 && sent !== (await changes());
      return isDue ? look() : [];
    },
  };
}

/** Sends the webhook deliveries recorded by the platform whenever they have been fetched. */
export function deliveriesFeed(recent: () => RecentDeliveries): Feed {
  let sent: RecentDeliveries | undefined;
  return {
    begin: () => [frame('deliveries', recent())],
    next() {
      const now = recent();
      if (now === sent) return [];
      sent = now;
      return [frame('deliveries', now)];
    },
  };
}

export function historyFeed(history: History): Feed {
  let sentSecond = history.second;
  return {
    begin(seen) {
      const rest = seen && history.since(seen.second);
      return [frame('history', { whole: rest === undefined, ...(rest ?? history.all()) })];
    },
    next() {
      const rest = history.since(sentSecond);
      sentSecond = history.second;
      return rest && rest.seconds.length > 0 ? [frame('history', { whole: false, ...rest })] : [];
    },
  };
}

/** Maximum number of lines per event. */
const LINES_AT_ONCE = 200;

/** Sends the log lines in memory, followed by new ones. */
export function logFeed(recent: RecentLines): Feed {
  let sentLine = recent.since(0).next;
  const framesFrom = (from: number, whole: boolean) => {
    const { lines, missed } = recent.since(from);
    const frames: string[] = [];
    for (let at = 0; at < lines.length; at += LINES_AT_ONCE) {
      const some = lines.slice(at, at + LINES_AT_ONCE).map((line) => JSON.parse(line) as Record<string, unknown>);
      frames.push(frame('log', { whole: whole && at === 0, missed: at === 0 && !whole ? missed : 0, lines: some }));
    }
    return frames;
  };
  return {
    begin: (seen) => framesFrom(seen?.line ?? 0, seen === undefined),
    next() {
      const from = sentLine;
      sentLine = recent.since(from).next;
      return framesFrom(from, false);
    },
  };
}

export interface HeldFeedParts {
  /** Number of quarantined values. */
  quarantined(): number;
  /** Returns quarantined values, oldest first. */
  show(page: { after: number; limit: number }): Promise<QuarantinedValues[]>;
  /** Display name of a series. */
  nameOf(series: number): string;
}

const MAX_QUARANTINE_ROWS = 200;

/** Sends the quarantined values with the platform messages whenever they change. Held values are part of the status. */
export function heldFeed({ quarantined, show, nameOf }: HeldFeedParts): Feed {
  let sent: string | undefined;
  const look = async () => {
    const rows = quarantined() === 0 ? [] : await show({ after: 0, limit: MAX_QUARANTINE_ROWS + 1 });
    const quarantine = rows
      .slice(0, MAX_QUARANTINE_ROWS)
      .map(({ series, count, status, message, atMs, timeMs, value }) => ({
        name: nameOf(series),
        values: count,
        status,
        message,
        refusedAtMs: atMs,
        first: timeMs.map((each, at) => ({ timeAtMs: each, value: value[at]! })),
      }));
    return frame('held', { quarantine, isMore: rows.length > MAX_QUARANTINE_ROWS });
  };
  return {
    begin: async () => [await look()],
    async next() {
      const now = await look();
      if (now === sent) return [];
      sent = now;
      return [now];
    },
  };
}

/**
 * Series with quarantined values. The list is refreshed on access if the number of values has changed, so it can be
 * slightly outdated.
 */
export class QuarantinedSeries {
  readonly #count: () => number;
  readonly #read: () => Promise<readonly number[]>;
  #asked = 0;
  #known: ReadonlySet<number> = new Set();

  /** `count`: number of quarantined values. */
  constructor(count: () => number, read: () => Promise<readonly number[]>) {
    this.#count = count;
    this.#read = read;
  }

  get known(): ReadonlySet<number> {
    const count = this.#count();
    if (count === this.#asked) return this.#known;
    this.#asked = count;
    this.#read().then(
      (series) => {
        this.#known = new Set(series);
      },
      () => {
        // Retry after a store error.
        this.#asked = Number.NaN;
      },
    );
    return this.#known;
  }
}
