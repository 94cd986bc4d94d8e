/**
 * What the page's stream carries, by the name of the event: the one declaration for the daemon, which writes it, and for the page, which
 * reads it. Times are milliseconds: since 1970 by the gateway's clock (`…WallMs`, `…AtMs`), or monotonic (`…MonotonicMs`), which the page
 * turns into a time by the last tick: a clock that is set moves nothing that was told before.
 */
import type { ObjectListing } from '../../access/known-objects.ts';
import type { CommandOutput } from '../../reactions/recent-outputs.ts';
import type { RecentDeliveries } from '../../webhook/deliveries.ts';
import type { EventLine } from '../../webhook/inbox-event.ts';
import type { StatusReport } from '../status-report.ts';
import type { HistoryRow } from './history.ts';

/** What may be asked for, in the stream's `of`; `tag.12` is one of the tags. */
export const TOPICS = ['now', 'history', 'tags', 'tag', 'events', 'deliveries', 'assets', 'held', 'log'] as const;
export type Topic = (typeof TOPICS)[number];

/** What a viewer may see: what `/status` shows and the readings of tags, or everything. */
export type Sight = 'status' | 'all';

/** First of all, at each beginning of the stream. */
export interface Hello {
  /** Another one: the daemon was started anew, and what it had in memory is gone. */
  boot: string;
  version: string;
  /** This machine's name. */
  gateway: string;
  startedWallMs: number;
  sight: Sight;
  zone: GatewayZone;
}

/** Of the gateway: times are shown as its people have them. */
export interface GatewayZone {
  /** `Europe/Berlin`; `null` where the machine does not tell. */
  name: string | null;
  /** Now; east of Greenwich is positive. */
  offsetMinutes: number;
}

/** A value of tags.yaml, as it is configured. */
export interface TagRow {
  tag: string;
  key: string;
  group: string | null;
  asset: number;
  instrumentation: number | null;
  /** Its number, or its code; empty where there is none. */
  unit: string;
  /** `null`: programs push it. */
  source: string | null;
  kind: string;
  scale: number;
  offset: number;
}

export const TAG_STATES = ['live', 'silent', 'held', 'refused', 'quarantined'] as const;

/** How a value stands now: the row, its last reading, and the shape of its last two dozen (a letter or digit each, `0` is the lowest). */
export type TagReading = [
  row: number,
  value: number | null,
  raw: number | null,
  /** Its own time; `null` where it has that of its arrival. */
  timeAtMs: number | null,
  takenMonotonicMs: number | null,
  /** Of `TAG_STATES`. */
  state: number,
  line: string,
];

/** Of one tag: `[monotonic milliseconds, last, least, greatest]` of each second with a reading. */
export type TagPoint = readonly [number, number, number, number];

/** An event of the inbox and what became of it. */
export interface LiveEvent extends EventLine {
  /** What it is about: `asset 881`. */
  object: string;
  /** JSON as received, its beginning. */
  content: string;
  /** How the outputs of its commands ended, as long as the daemon remembers. */
  outputs: CommandOutput[];
  journal: { reaction: string; action: string; outcome: string; detail: string; durationMs: number; atMs: number }[];
}

interface QuarantineLine {
  name: string;
  values: number;
  status: number;
  message: string;
  refusedAtMs: number;
  /** The first of them. */
  first: { timeAtMs: number; value: number }[];
}

export interface LiveEvents {
  hello: Hello;
  /** Each second, last of what is new. */
  tick: { atMs: number; monotonicMs: number };
  now: StatusReport;
  /** `whole`: what was told before is to be forgotten. */
  history: { whole: boolean; seconds: HistoryRow[]; minutes: HistoryRow[] };
  /** All rows, some hundred at a time: `first` is the number of the first of these. */
  tags: { first: number; total: number; rows: TagRow[] };
  readings: TagReading[];
  /** `whole`: the beginning. `path`: where it is posted. */
  tag: { row: number; whole: boolean; path: string; points: TagPoint[] };
  /** Those that changed, newest first; how many requests were refused, by why. */
  events: { whole: boolean; events: LiveEvent[]; rejected: Record<string, number>; received: number };
  deliveries: RecentDeliveries;
  /** The last seen of all that are known. */
  assets: ObjectListing;
  held: { quarantine: QuarantineLine[]; isMore: boolean };
  /** As they were written; `missed`: overwritten before they were told. */
  log: { whole: boolean; missed: number; lines: Record<string, unknown>[] };
}

export type LiveEventName = keyof LiveEvents;
