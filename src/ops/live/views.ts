/**
 * Views of the page as JSON, shared by the agent and the page. `/live/now` returns the view `now`. Times are in
 * milliseconds: since 1970 by the gateway clock (`…AtMs`) or monotonic (`…MonotonicMs`). The page converts monotonic
 * times with the latest clock reading, so that clock changes do not affect earlier data.
 *
 * A view that grows has a cursor. A client that sends `next` back in the parameter `after` receives the data that
 * follows. After an agent restart, or if the data is no longer stored, it receives everything again.
 */
import type { ObjectListing } from '../../access/access-table.ts';
import type { CommandOutput } from '../../reactions/command-output.ts';
import type { RecentDeliveries } from '../../webhook/deliveries.ts';
import type { EventLine } from '../../webhook/inbox-event.ts';
import type { StatusReport } from '../status-report.ts';
import type { HistoryRow } from './history.ts';

/** Data visible to a viewer: the content of `/status` and tag readings, or everything. */
export type Sight = 'status' | 'all';

/** Cursor of a view that grows. */
export interface Growing {
  /** Value of `after` for the next request. */
  next: string;
  /** Whether the data replaces all previous data. */
  whole: boolean;
  /** Whether there is more data already, so that the next request does not have to wait. */
  more: boolean;
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

/** Latest reading of a value and a sparkline of the last two dozen readings (one base-36 digit each, `0` is the lowest). */
export type TagReading = [
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

interface DoctorLine {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  /** Recommended action; empty if there is no problem. */
  next: string;
}

export interface Views {
  now: {
    version: string;
    /** The machine's host name. */
    gateway: string;
    sight: Sight;
    zone: GatewayZone;
    clock: { atMs: number; monotonicMs: number };
    /** Content of `/status`. */
    status: StatusReport;
  };
  history: Growing & { seconds: HistoryRow[]; minutes: HistoryRow[] };
  /**
   * Some of the values in tags.yaml, starting with row `first`. The configuration of a row is sent once, until tags.yaml
   * changes.
   */
  tags: Growing & { total: number; first: number; rows: TagRow[]; readings: TagReading[] };
  /** `path`: path to which the values are posted. */
  tag: Growing & { row: TagRow; reading: TagReading; path: string; points: TagPoint[] };
  /** Newest events first, and the number of rejected requests by reason. */
  events: {
    events: LiveEvent[];
    rejected: Record<string, number>;
    received: number;
    deliveries: RecentDeliveries;
  };
  /** Most recently seen objects. */
  assets: ObjectListing;
  held: { quarantine: QuarantineLine[]; isMore: boolean };
  /** Log lines in order; `missed` is the number of lines overwritten before they were requested. */
  log: Growing & { missed: number; lines: Record<string, unknown>[] };
  doctor: { atMs: number; checks: DoctorLine[] };
}
