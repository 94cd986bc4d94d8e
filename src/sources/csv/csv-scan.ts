/** Reads the newest file in a folder for `sources test` and `sources scan`, without storing or moving anything. */
import { systemClock } from '../../base/clock.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { Point } from '../points.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import type { ObservedReading } from '../status.ts';
import { FileColumns, headerOf } from './columns.ts';
import { separatorOf, splitRecord } from './csv.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { fileRecords, readHead } from './file-reading.ts';
import { FolderClient, folderProblem } from './folder-client.ts';
import { proposeMembers } from './proposed-members.ts';

const MAX_ROWS = 50;

interface Sample {
  /** Header row, or the first data row if the file has no header. */
  first: string;
  /** Rows below the header that contain units. */
  units: string[];
  rows: { text: string; line: number }[];
}

/**
 * Reads the first rows of the newest waiting file, or of the newest finished file if none is waiting. Throws
 * `UnreadableValues` or `FolderFailure`.
 */
async function readSample(spec: CsvSpec, signal: AbortSignal): Promise<Sample> {
  const folder = new FolderClient(spec.folder, systemClock);
  const end = () => folder.end();
  signal.addEventListener('abort', end, { once: true });
  try {
    const file = await openNewest(folder, spec);
    const head = await readHead(file, spec, file.size, true);
    if (!head) throw new UnreadableValues(`${file.name} is empty`);
    const rows: Sample['rows'] = [];
    for await (const { text, line } of fileRecords(file, head.rows, file.size, spec.encoding, true)) {
      if (text.trim() !== '') rows.push({ text, line });
      if (rows.length >= MAX_ROWS) break;
    }
    return { first: head.first, units: head.units, rows };
  } finally {
    signal.removeEventListener('abort', end);
    folder.end();
  }
}

async function openNewest(folder: FolderClient, { folder: path, pattern }: CsvSpec) {
  const { files } = await folder.list('', pattern);
  const newest = files.at(-1);
  if (newest) return await folder.open('', newest.name);
  const finished = await folder.list('done', pattern).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return { files: [] };
    throw error;
  });
  const last = finished.files.at(-1);
  if (!last) throw new UnreadableValues(`no file in ${path} matches ${pattern}`);
  return await folder.open('done', last.name);
}

/** Reads each value from the first row that contains it. */
export async function testCsv(
  spec: CsvSpec,
  points: readonly Point<CsvValue>[],
  signal: AbortSignal,
): Promise<ObservedReading[]> {
  const found = new Map<Point<CsvValue>, ObservedReading>();
  let problem = 'not in the first rows of the newest file';
  try {
    const { first, rows } = await readSample(spec, signal);
    const columns = new FileColumns(spec, points, first);
    let afterMs: number | undefined;
    for (const { text, line } of rows) {
      const row = columns.read(text, line, afterMs);
      afterMs = row.timeMs ?? afterMs;
      if (row.problem !== undefined) problem = `line ${line}: ${row.problem}`;
      for (const { point, raw, problem: wrong } of row.cells) {
        if (found.get(point)?.raw !== undefined) continue;
        const time = row.timeMs === undefined ? {} : { timeMs: row.timeMs };
        found.set(point, wrong === undefined ? { point, raw, ...time } : { point, problem: `line ${line}: ${wrong}` });
      }
    }
  } catch (error) {
    problem = error instanceof UnreadableValues ? error.message : folderProblem(spec.folder, codeOf(error)).problem;
  }
  return points.map((point) => found.get(point) ?? { point, problem });
}

/** Lists the columns of the newest file. In the long format, lists the tags and keys in its first rows. */
export async function* scanCsv(spec: CsvSpec, signal: AbortSignal): AsyncGenerator<ScanStep> {
  const sample = await readSample(spec, signal).catch((error: unknown) => {
    if (error instanceof TagferryError) throw error;
    const { problem, hint } = folderProblem(spec.folder, codeOf(error));
    throw new TagferryError(problem, { code: 'source.scan', ...(hint ? { hint } : {}) });
  });
  const { first, units, rows } = sample;
  const texts = rows.map(({ text }) => text);
  const members = proposeMembers(spec, first, texts);
  if (Object.keys(members).length > 0) yield { source: { ...members } };
  if (spec.form === 'long') {
    yield* scanRows(sample, spec);
    return;
  }
  const { units_row: unitsRow = 0, time_column: time = [] } = members;
  const timeColumns = spec.timeColumns.length > 0 ? spec.timeColumns : [time].flat();
  const proposed = { first, units: [...units, ...texts.slice(0, unitsRow)], rows: rows.slice(unitsRow) };
  yield* scanColumns(proposed, { ...spec, timeColumns });
}

function* scanColumns({ first, units, rows }: Sample, { separator = separatorOf(first), ...spec }: CsvSpec) {
  const values = splitRecord(rows[0]?.text ?? '', separator, 1);
  const unitRows = units.map((text) => splitRecord(text, separator, 1));
  const names = spec.hasHeader ? headerOf(first, separator) : values.map((_, at) => String(at + 1));
  const times = spec.timeColumns.map((column) => (typeof column === 'number' ? column - 1 : names.indexOf(column)));
  const keys = new ScannedNames();
  for (const [at, name] of names.entries()) {
    if (times.includes(at) || name === '') continue;
    const key = keys.unique(name, `column_${at + 1}`);
    const column = spec.hasHeader ? name : at + 1;
    const texts = [values, ...unitRows].map((row) => (row[at] ?? '').trim());
    yield { found: { key, members: { column }, sample: texts.filter((text) => text !== '').join(' ') } };
  }
  yield { done: names.length, total: names.length };
}

function* scanRows({ first, rows }: Sample, { separator = separatorOf(first) }: CsvSpec) {
  const names = headerOf(first, separator);
  const [tagAt, keyAt, valueAt] = ['tag', 'key', 'value'].map((name) => names.indexOf(name));
  const seen = new Set<string>();
  for (const { text, line } of rows) {
    const fields = splitRecord(text, separator, line).map((field) => field.trim());
    const [tag, key, sample] = [tagAt, keyAt, valueAt].map((at) => fields[at!] ?? '');
    if (!tag || !key || seen.has(`${tag} ${key}`)) continue;
    seen.add(`${tag} ${key}`);
    yield { found: { tag, key, members: {}, sample: sample! } };
  }
  yield { done: rows.length, total: rows.length };
}
