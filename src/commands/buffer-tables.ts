/** What `buffer ls` and `buffer quarantine` print for people. */

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

/** The tag and key, else `asset 881/key`, with the group where there is one. */
function nameOf({ tag, asset, key, group }: { tag?: string; asset: number; key: string; group?: string }): string {
  const place = group === undefined ? key : `${group}/${key}`;
  return tag === undefined ? `asset ${asset}/${place}` : `${tag} ${place}`;
}

const number = (value: number) => value.toLocaleString('en');

function sizeText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}

const timeText = (time: string | undefined) => time?.slice(0, 19).replace('T', ' ') ?? '';

export function listingText(series: readonly ListedSeries[]): string {
  if (series.length === 0) return 'The buffer is empty.';
  const rows = [...series]
    .sort((a, b) => nameOf(a).localeCompare(nameOf(b)))
    .map((row) => [
      nameOf(row),
      number(row.values),
      number(row.live),
      number(row.backlog),
      timeText(row.from),
      timeText(row.to),
      sizeText(row.bytes),
      [row.held ? 'held' : '', row.quarantined > 0 ? `${number(row.quarantined)} in quarantine` : '']
        .filter((note) => note !== '')
        .join(', '),
    ]);
  const values = series.reduce((sum, row) => sum + row.values, 0);
  const bytes = series.reduce((sum, row) => sum + row.bytes, 0);
  const total = ['total', number(values), '', '', '', '', sizeText(bytes), ''];
  return aligned([['series', 'values', 'live', 'backlog', 'from (UTC)', 'to (UTC)', 'bytes', ''], ...rows, total]);
}

export function quarantineText(rows: readonly QuarantinedRow[]): string {
  if (rows.length === 0) return 'Nothing is in quarantine.';
  return aligned([
    ['series', 'values', 'first value', 'at (UTC)', 'refused (UTC)', 'status', "the platform's words"],
    ...rows.map((row) => [
      nameOf(row),
      number(row.values),
      String(row.first[0]?.value ?? ''),
      timeText(row.first[0]?.timestamp),
      timeText(row.refused_at),
      String(row.status),
      printable(row.message),
    ]),
  ]);
}

/** The platform's words on a terminal: no line feeds, no control characters. */
function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, ' ').slice(0, 200);
}

/** Columns as wide as they need; all but the first and the last to the right. */
function aligned(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => (i === 0 || i === row.length - 1 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
