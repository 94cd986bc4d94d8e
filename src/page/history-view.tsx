import { useMemo, useState } from 'preact/hooks';
import { bytesText, countText, durationText } from '../base/amounts.ts';
import type { HistoryRow } from '../ops/live/history.ts';
import type { Views } from '../ops/live/views.ts';
import type { StatusReport } from '../ops/status-report.ts';
import type { Gateway } from './gateway.ts';
import { Chart, type ChartLine } from './parts/chart.tsx';
import { Choice } from './parts/choice.tsx';
import { usePoll } from './poll.ts';
import { PollState } from './poll-state.tsx';

const DAY_S = 86_400;
/** Number of samples per second and per minute that the gateway stores. */
const [SECONDS, MINUTES] = [600, 1_440];
const SPANS = ['10 minutes', '24 hours'] as const;

/** Columns of a row, in the order of `HistorySample`. */
const [AT, INGESTED, DELIVERED, BACKLOG, LATENCY, REQUESTS, RSS, OUT] = [0, 1, 2, 3, 4, 5, 6, 7];

interface Shown {
  title: string;
  lines: (ChartLine & { place: number })[];
}

const milliseconds = (value: number) => (value < 10_000 ? `${Math.round(value)} ms` : durationText(value / 1000));

const CHARTS: readonly Shown[] = [
  {
    title: 'Values',
    lines: [
      { label: 'ingested', colour: '--line-1', text: countText, place: INGESTED },
      { label: 'delivered', colour: '--line-2', text: countText, place: DELIVERED },
    ],
  },
  { title: 'Buffer', lines: [{ label: 'buffered values', colour: '--line-1', text: countText, place: BACKLOG }] },
  {
    title: 'Delivery',
    lines: [{ label: 'ingest to delivery', colour: '--line-1', text: milliseconds, place: LATENCY }],
  },
  { title: 'Requests', lines: [{ label: 'in the last minute', colour: '--line-1', text: countText, place: REQUESTS }] },
  { title: 'Memory', lines: [{ label: 'resident', colour: '--line-1', text: bytesText, place: RSS }] },
];

interface Samples {
  seconds: HistoryRow[];
  minutes: HistoryRow[];
}

/** Adds new samples to the previous ones. */
function merge(before: Samples | undefined, { whole, seconds, minutes }: Views['history']): Samples {
  if (whole || !before) return { seconds, minutes };
  return {
    seconds: [...before.seconds, ...seconds].slice(-SECONDS),
    minutes: minutes.length === 0 ? before.minutes : [...before.minutes, ...minutes].slice(-MINUTES),
  };
}

export function HistoryView({ gateway, now }: { gateway: Gateway; now: StatusReport }) {
  const history = usePoll<Views['history'], Samples>('live/history', { merge });
  const [span, setSpan] = useState<(typeof SPANS)[number]>('10 minutes');
  const isShort = span === '10 minutes';
  const rows = (isShort ? history.data?.seconds : history.data?.minutes) ?? [];
  const columns = useMemo(() => {
    const times = rows.map((row) => gateway.wallMs(row[AT]!) / 1000);
    return { times, of: (place: number) => rows.map((row) => row[place] ?? null) };
  }, [rows]);
  const shaded = useMemo(() => spansOf(columns.times, columns.of(OUT), isShort ? 1 : 60), [columns]);
  return (
    <>
      <div class="tools">
        <Choice label="Period" options={SPANS} chosen={span} choose={(option) => setSpan(option)} />
        <p>
          {isShort ? 'One sample per second.' : 'One sample per minute.'} {sinceText(gateway, now)}
        </p>
      </div>
      <PollState poll={history} />
      {history.data && rows.length < 2 && <p>Waiting for the first samples{isShort ? '' : ' (two minutes)'}…</p>}
      <div class="charts">
        {rows.length >= 2 &&
          CHARTS.map(({ title, lines }) => (
            <History
              key={title}
              title={title === 'Values' ? `Values per ${isShort ? 'second' : 'minute'}` : title}
              lines={lines}
              columns={columns}
              shaded={shaded}
              time={(atMs) => gateway.time(atMs).slice(11)}
            />
          ))}
      </div>
    </>
  );
}

interface HistoryProps extends Shown {
  columns: { times: number[]; of(place: number): (number | null)[] };
  shaded: [number, number][];
  time(atMs: number): string;
}

function History({ title, lines, columns, shaded, time }: HistoryProps) {
  const data = useMemo(() => [columns.times, ...lines.map(({ place }) => columns.of(place))], [columns]);
  return (
    <Chart title={title} lines={lines} columns={data} time={time} shaded={shaded} shadedLabel="no posts accepted" />
  );
}

/** The history begins when the agent starts, because the gateway stores it in memory. */
function sinceText({ time }: Gateway, { uptime_seconds: seconds, started_at: started }: StatusReport): string {
  if (seconds >= DAY_S) return 'The history is kept in memory and is lost on restart.';
  return `History starts at agent startup, ${durationText(seconds)} ago, at ${time(Date.parse(started))}.`;
}

/** Returns a period for each outage, from the sample before the outage to the final sample of the outage. */
function spansOf(times: readonly number[], out: readonly (number | null)[], step: number): [number, number][] {
  const spans: [number, number][] = [];
  for (const [at, isOut] of out.entries()) {
    if (isOut !== 1) continue;
    const last = spans.at(-1);
    if (last && out[at - 1] === 1) last[1] = times[at]!;
    else spans.push([times[at]! - step, times[at]!]);
  }
  return spans;
}
