/** Options that select buffered series, and the tables that `buffer ls` and `buffer quarantine` print. */
import type { Command } from 'commander';
import { bytesText, countText, timeText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { positiveInteger } from '../terminal/input.ts';

/** Options that select series. */
export interface SeriesFlags {
  tag?: string;
  asset?: string;
  key?: string;
  json?: boolean;
}

export function withSeriesOptions(command: Command): Command {
  return command
    .option('--tag <name>', 'tag in tags.yaml (default: all)')
    .option('--asset <number>', 'asset number (default: all)')
    .option('--key <key>', 'value key (default: all)')
    .option('--json', 'print JSON');
}

/** Returns the options as control route parameters. Throws `UsageError` if the asset is not a positive integer. */
export function selectionOf({ tag, asset, key }: SeriesFlags): Record<string, unknown> {
  return { tag, key, asset: asset === undefined ? undefined : positiveInteger('--asset', asset) };
}

export interface ListedSeries {
  tag?: string;
  asset: number;
  key: string;
  group?: string;
  unit?: number | { code: string };
  values: number;
  live: number;
  backlog: number;
  under_way: number;
  quarantined: number;
  from?: string;
  to?: string;
  bytes: number;
  held: boolean;
}

export interface QuarantinedRow {
  id: number;
  tag?: string;
  asset: number;
  key: string;
  group?: string;
  values: number;
  refused_at: string;
  status: number;
  message: string;
  first: { timestamp: string; value: number }[];
}

const MAX_MESSAGE = 200;

/** Returns `FT-101 flow`, or `asset 881/flow` if there is no tag. If there is a group, it precedes the key. */
function nameOf({ tag, asset, key, group }: { tag?: string; asset: number; key: string; group?: string }): string {
  const place = group === undefined ? key : `${group}/${key}`;
  return tag === undefined ? `asset ${asset}/${place}` : `${tag} ${place}`;
}

export function seriesTable(series: readonly ListedSeries[]): string {
  if (series.length === 0) return 'The buffer is empty.';
  const rows = [...series]
    .sort((a, b) => nameOf(a).localeCompare(nameOf(b)))
    .map((row) => [
      nameOf(row),
      countText(row.values),
      countText(row.live),
      countText(row.backlog),
      timeText(row.from),
      timeText(row.to),
      bytesText(row.bytes),
      [
        ...(row.held ? ['held'] : []),
        ...(row.quarantined > 0 ? [`${countText(row.quarantined)} in quarantine`] : []),
      ].join(', '),
    ]);
  const values = series.reduce((sum, row) => sum + row.values, 0);
  const bytes = series.reduce((sum, row) => sum + row.bytes, 0);
  return table([
    ['series', 'values', 'live', 'backlog', 'from (UTC)', 'to (UTC)', 'size', ''],
    ...rows,
    ['total', countText(values), '', '', '', '', bytesText(bytes), ''],
  ]);
}

export function quarantineTable(rows: readonly QuarantinedRow[]): string {
  if (rows.length === 0) return 'No values in quarantine.';
  return table([
    ['series', 'values', 'first value', 'timestamp (UTC)', 'rejected (UTC)', 'status', 'platform response'],
    ...rows.map((row) => [
      nameOf(row),
      countText(row.values),
      String(row.first[0]?.value ?? ''),
      timeText(row.first[0]?.timestamp),
      timeText(row.refused_at),
      String(row.status),
      plain(row.message).slice(0, MAX_MESSAGE),
    ]),
  ]);
}
