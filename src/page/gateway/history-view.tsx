import { useMemo, useState } from 'preact/hooks';
import { bytesText, countText, durationText } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { Chart, type ChartLine } from '../parts/chart.tsx';
import { Choice } from '../parts/choice.tsx';
import type { Model } from './model.ts';

const DAY_S = 86_400;
const SPANS = ['ten minutes', '24 hours'] as const;

/** Places in a row, in the order of `HistorySample`. */
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
      { label: 'in', colour: '--line-1', text: countText, place: INGESTED },
      { label: 'delivered', colour: '--line-2', text: countText, place: DELIVERED },
    ],
  },
  { title: 'Buffer', lines: [{ label: 'values that wait', colour: '--line-1', text: countText, place: BACKLOG }] },
  {
    title: 'Delivery',
    lines: [
      { label: 'from acceptance to the platform’s word', colour: '--line-1', text: milliseconds, place: LATENCY },
    ],
  },
  { title: 'Requests', lines: [{ label: 'in the last minute', colour: '--line-1', text: countText, place: REQUESTS }] },
  { title: 'Memory', lines: [{ label: 'resident', colour: '--line-1', text: bytesText, place: RSS }] },
];

export function HistoryView({ model, now }: { model: Model; now: StatusReport }) {
  const [span, setSpan] = useState<(typeof SPANS)[number]>('ten minutes');
  const isShort = span === 'ten minutes';
  const rows = isShort ? model.history.seconds : model.history.minutes;
  const columns = useMemo(() => {
    const times = rows.map((row) => model.wallMs(row[AT]!) / 1000);
    return { times, of: (place: number) => rows.map((row) => row[place] ?? null) };
  }, [rows]);
  const shaded = useMemo(() => spansOf(columns.times, columns.of(OUT), isShort ? 1 : 60), [columns]);
  return (
    <>
      <div class="tools">
        <Choice label="How far back" options={SPANS} chosen={span} choose={(option) => setSpan(option)} />
        <p>
          {isShort ? 'A sample a second.' : 'A sample a minute.'} {sinceText(model, now)}
        </p>
      </div>
      {rows.length < 2 && <p>The first samples come in {isShort ? 'a moment' : 'two minutes'}.</p>}
      <div class="charts">
        {rows.length >= 2 &&
          CHARTS.map(({ title, lines }) => (
            <History
              key={title}
              title={title === 'Values' ? `Values a ${isShort ? 'second' : 'minute'}` : title}
              lines={lines}
              columns={columns}
              shaded={shaded}
              time={(atMs) => model.time(atMs).slice(11)}
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
  return <Chart title={title} lines={lines} columns={data} time={time} shaded={shaded} shadedLabel="no posts taken" />;
}

/** The gateway keeps it in memory: what a restart forgot is said. */
function sinceText({ time }: Model, { uptime_seconds: seconds, started_at: started }: StatusReport): string {
  if (seconds >= DAY_S) return 'Kept in the gateway’s memory; a restart forgets it.';
  return `It begins with the agent’s start ${durationText(seconds)} ago, at ${time(Date.parse(started))}: what was before is forgotten.`;
}

/** From the sample before the first that is out to the last one. */
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
