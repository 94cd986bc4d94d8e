/**
 * What the page's stream carries, by the name of the event: the one declaration for the daemon, which writes it, and for the page, which
 * reads it. Times are milliseconds since 1970 by the gateway's clock, durations say their unit.
 */
import type { StatusReport } from '../status-report.ts';

/** What may be asked for, in the stream's `of`. */
export const TOPICS = ['now'] as const;
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
  startedMs: number;
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

export interface LiveEvents {
  hello: Hello;
  /** Each second, last of what is new. */
  tick: { atMs: number };
  now: StatusReport;
}

export type LiveEventName = keyof LiveEvents;
