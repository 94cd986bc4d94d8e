import type { LiveEvent, LiveEvents } from '../../ops/live/live-events.ts';

const MAX_EVENTS = 50;

/** Newest inbox events. */
export class KnownEvents {
  events: LiveEvent[] = [];
  rejected: Record<string, number> = {};
  received = 0;

  update({ whole, events, rejected, received }: LiveEvents['events']): void {
    const byId = new Map((whole ? [] : this.events).map((event) => [event.id, event]));
    for (const event of events) byId.set(event.id, event);
    this.events = [...byId.values()].sort((one, other) => other.id - one.id).slice(0, MAX_EVENTS);
    this.rejected = rejected;
    this.received = received;
  }
}

type Row = LiveEvents['history']['seconds'][number];

const SECONDS = 600;
const MINUTES = 1_440;

/** Samples of the previous ten minutes and 24 hours, as stored on the gateway. */
export class KnownHistory {
  seconds: Row[] = [];
  minutes: Row[] = [];

  update({ whole, seconds, minutes }: LiveEvents['history']): void {
    this.seconds = appended(whole ? [] : this.seconds, seconds, SECONDS);
    this.minutes = appended(whole ? [] : this.minutes, minutes, MINUTES);
  }
}

/** Appends rows without duplicates; rows are ordered by time. */
function appended(rows: Row[], more: Row[], max: number): Row[] {
  const lastMs = rows.at(-1)?.[0] ?? Number.NEGATIVE_INFINITY;
  return [...rows, ...more.filter((row) => row[0]! > lastMs!)].slice(-max);
}

export interface KnownLine {
  /** Line number assigned by this page. */
  number: number;
  level: string;
  atMs: number;
  event: string;
  msg: string;
  /** Other members of the line. */
  fields: Record<string, unknown>;
  /** Searchable text in lower case. */
  text: string;
}

const LINES = 1_000;
const LEVELS: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};

/** Latest log lines, as many as the gateway stores in memory. */
export class KnownLog {
  lines: KnownLine[] = [];
  /** Number of lines that the gateway discarded before it could send them. */
  missed = 0;
  #count = 0;

  update({ whole, missed, lines }: LiveEvents['log']): void {
    if (whole) this.missed = 0;
    this.missed += missed;
    this.lines = [...(whole ? [] : this.lines), ...lines.map((line) => this.#parse(line))].slice(-LINES);
  }

  #parse({ level, time, event, msg, ...fields }: Record<string, unknown>): KnownLine {
    const known = {
      number: this.#count++,
      level: typeof level === 'number' ? (LEVELS[level] ?? String(level)) : String(level ?? ''),
      atMs: typeof time === 'number' ? time : Date.parse(String(time ?? '')),
      event: String(event ?? ''),
      msg: String(msg ?? ''),
      fields,
    };
    return { ...known, text: `${known.event} ${known.msg} ${JSON.stringify(fields)}`.toLowerCase() };
  }
}
