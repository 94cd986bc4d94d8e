/**
 * Page stream events, shared by the agent and the page. Times are in milliseconds: since 1970 by the gateway clock
 * (`…WallMs`, `…AtMs`) or monotonic (`…MonotonicMs`). The page converts monotonic times with the latest tick, so that
 * clock changes do not affect earlier data.
 */
import type { ObjectListing } from '../../access/access-table.ts';
import type { CommandOutput } from '../../reactions/command-output.ts';
import type { RecentDeliveries } from '../../webhook/deliveries.ts';
import type { EventLine } from '../../webhook/inbox-event.ts';
import type { StatusReport } from '../status-report.ts';
import type { HistoryRow } from './history.ts';

/** Topics that can be requested in the `of` parameter; `tag.12` is one tag. */
export const TOPICS = ['now', 'history', 'tags', 'tag', 'events', 'deliveries', 'assets', 'held', 'log'] as const;
export type Topic = (typeof TOPICS)[number];

/** Data visible to a viewer: the content of `/status` and tag readings, or everything. */
export type Sight = 'status' | 'all';

/** First event of each stream. */
export interface Hello {
  /** Changes when the agent restarts and loses the data in memory. */
  boot: string;
  version: string;
  /** The machine's host name. */
  gateway: string;
  startedWallMs: number;
  sight: Sight;
  zone: GatewayZone;
}

/** The gateway's time zone, used to display times. */
export interface GatewayZone {
  /** Name such as `Europe/Berlin`; `null` if unknown. */
  name: string | null;
  /** Current offset in minutes; positive east of Greenwich. */
  offsetMinutes: number;
}

/** Value configured in tags.yaml. */
export interface TagRow {
  tag: string;
  key: string;
  group: string | null;
  asset: number;
  instrumentation: number | null;
  /** Unit number or code; empty if there is none. */
  unit: string;
  /** Name of the source; `null` if programs push the value. */
  source: string | null;
  kind: string;
  scale: number;
  offset: number;
}

export const TAG_STATES = ['live', 'silent', 'held', 'refused', 'quarantined'] as const;

/**
 * State of a value: row, latest reading and a sparkline of the last two dozen readings (one base-36 digit each, `0`
 * is the lowest).
 */
export type TagReading = [
  row: number,
  value: number | null,
  raw: number | null,
  /** Timestamp of the value; `null` if the time of arrival is used. */
  timeAtMs: number | null,
  takenMonotonicMs: number | null,
  /** Index in `TAG_STATES`. */
  state: number,
  line: string,
];

/** `[monotonic milliseconds, last, minimum, maximum]` for each second with a reading of one tag. */
export type TagPoint = readonly [number, number, number, number];

/** Inbox event with its processing results. */
export interface LiveEvent extends EventLine {
  /** Object of the event, such as `asset 881`. */
  object: string;
  /** Received JSON, possibly truncated. */
  content: string;
  /** Final output of the event's commands, if still stored. */
  outputs: CommandOutput[];
  journal: { reaction: string; action: string; outcome: string; detail: string; durationMs: number; atMs: number }[];
}

interface QuarantineLine {
  name: string;
  values: number;
  status: number;
  message: string;
  refusedAtMs: number;
  /** The first quarantined values. */
  first: { timeAtMs: number; value: number }[];
}

export interface LiveEvents {
  hello: Hello;
  /** Sent every second, after all other events. */
  tick: { atMs: number; monotonicMs: number };
  now: StatusReport;
  /** `whole`: whether the data replaces all previous data. */
  history: { whole: boolean; seconds: HistoryRow[]; minutes: HistoryRow[] };
  /** All rows in batches of several hundred; `first` is the index of the first row in the batch. */
  tags: { first: number; total: number; rows: TagRow[] };
  readings: TagReading[];
  /** `whole`: whether the data replaces all previous data. `path`: path to which the values are posted. */
  tag: { row: number; whole: boolean; path: string; points: TagPoint[] };
  /** Changed events, newest first, and the number of rejected requests by reason. */
  events: { whole: boolean; events: LiveEvent[]; rejected: Record<string, number>; received: number };
  deliveries: RecentDeliveries;
  /** Most recently seen objects. */
  assets: ObjectListing;
  held: { quarantine: QuarantineLine[]; isMore: boolean };
  /** Log lines in order; `missed` is the number of lines overwritten before they were sent. */
  log: { whole: boolean; missed: number; lines: Record<string, unknown>[] };
}

export type LiveEventName = keyof LiveEvents;
