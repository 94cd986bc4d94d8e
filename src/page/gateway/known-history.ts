import type { LiveEvents } from '../../ops/live/live-events.ts';

type Row = LiveEvents['history']['seconds'][number];

const SECONDS = 600;
const MINUTES = 1_440;

/** What the gateway told of its last ten minutes and 24 hours: as much as it keeps itself. */
export class KnownHistory {
  seconds: Row[] = [];
  minutes: Row[] = [];

  take({ whole, seconds, minutes }: LiveEvents['history']): void {
    this.seconds = behind(whole ? [] : this.seconds, seconds, SECONDS);
    this.minutes = behind(whole ? [] : this.minutes, minutes, MINUTES);
  }
}

/** What was told twice stands once: rows are in the order of their time. */
function behind(rows: Row[], more: Row[], max: number): Row[] {
  const lastMs = rows.at(-1)?.[0] ?? Number.NEGATIVE_INFINITY;
  return [...rows, ...more.filter((row) => row[0]! > lastMs!)].slice(-max);
}
