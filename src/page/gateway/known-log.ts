import type { LiveEvents } from '../../ops/live/live-events.ts';

export interface KnownLine {
  /** Counted by this page. */
  number: number;
  level: string;
  atMs: number;
  event: string;
  msg: string;
  /** Everything else that the line says. */
  fields: Record<string, unknown>;
  /** In lower case: what a search looks in. */
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

/** The last lines of the gateway's log, as many as it keeps itself. */
export class KnownLog {
  lines: KnownLine[] = [];
  /** Lines that came and went before they were told. */
  missed = 0;
  #count = 0;

  take({ whole, missed, lines }: LiveEvents['log']): void {
    if (whole) this.missed = 0;
    this.missed += missed;
    this.lines = [...(whole ? [] : this.lines), ...lines.map((line) => this.#read(line))].slice(-LINES);
  }

  #read({ level, time, event, msg, ...fields }: Record<string, unknown>): KnownLine {
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
