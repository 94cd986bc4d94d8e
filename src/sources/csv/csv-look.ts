/** Reads the newest file of a folder for `sources test` and `sources scan`, without storing or moving anything. */
import { systemClock } from '../../base/clock.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import type { TestedValue } from '../arrivals.ts';
import type { Point } from '../points.ts';
import { UnreadableValues } from '../problem-list.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { separatorOf, splitRecord } from './csv.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { FileColumns, headerOf } from './file-columns.ts';
import { headOf } from './file-reading.ts';
import { fileRecords } from './file-records.ts';
import { FolderClient, folderProblem } from './folder-client.ts';
import type { Where } from './folder-protocol.ts';

const ROWS = 50;

interface Look {
  first: string;
  rows: { text: string; line: number }[];
}

/** The first rows of the newest file, or of the newest finished file. Throws `UnreadableValues` or `FolderFailure`. */
async function look(spec: CsvSpec, signal: AbortSignal): Promise<Look> {
  const folder = new FolderClient(spec.folder, systemClock);
  const end = () => folder.end();
  signal.addEventListener('abort', end, { once: true });
  try {
    const found = await newest(folder, spec);
    if (!found) throw new UnreadableValues(`no file in ${spec.folder} matches ${spec.pattern}`);
    const file = await folder.open(found.where, found.name);
    const head = await headOf(file, spec, file.size, true);
    if (!head) throw new UnreadableValues(`${found.name} is empty`);
    const rows: Look['rows'] = [];
    for await (const { text, line } of fileRecords(file, head.rows, file.size, spec.encoding, true)) {
      if (text.trim() !== '') rows.push({ text, line });
      if (rows.length >= ROWS) break;
    }
    return { first: head.first, rows };
  } finally {
    signal.removeEventListener('abort', end);
    folder.end();
  }
}

async function newest(folder: FolderClient, spec: CsvSpec): Promise<{ where: Where; name: string } | undefined> {
  for (const where of ['', 'done'] as const) {
    const { files } = await folder.list(where, spec.pattern).catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT' && where === 'done') return { files: [] };
      throw error;
    });
    const last = files.at(-1);
    if (last) return { where, name: last.name };
  }
  return undefined;
}

/** Each value as the first row that has it tells it. */
export async function testCsv(
  spec: CsvSpec,
  points: readonly Point<CsvValue>[],
  signal: AbortSignal,
): Promise<TestedValue[]> {
  const found = new Map<Point<CsvValue>, TestedValue>();
  let problem = 'no row of the newest file has it';
  try {
    const { first, rows } = await look(spec, signal);
    const columns = new FileColumns(spec, points, first);
    let afterMs: number | undefined;
    for (const { text, line } of rows) {
      const row = columns.read(text, line, afterMs);
      afterMs = row.timeMs ?? afterMs;
      if (row.problem !== undefined) problem = `line ${line}: ${row.problem}`;
      for (const { point, raw, problem: wrong } of row.cells) {
        if ('raw' in (found.get(point) ?? {})) continue;
        const time = row.timeMs === undefined ? {} : { timeMs: row.timeMs };
        found.set(point, wrong === undefined ? { point, raw, ...time } : { point, problem: `line ${line}: ${wrong}` });
      }
    }
  } catch (error) {
    if (error instanceof UnreadableValues) problem = error.message;
    else problem = folderProblem(spec.folder, codeOf(error)).problem;
  }
  return points.map((point) => found.get(point) ?? { point, problem });
}

/** The columns of the newest file. */
export async function* scanCsv(spec: CsvSpec, signal: AbortSignal): AsyncGenerator<ScanStep> {
  let found: Look;
  try {
    found = await look(spec, signal);
  } catch (error) {
    if (error instanceof TagferryError) throw error;
    const { problem, hint } = folderProblem(spec.folder, codeOf(error));
    throw new TagferryError(problem, { code: 'source.scan', ...(hint ? { hint } : {}) });
  }
  const separator = spec.separator ?? separatorOf(found.first);
  if (spec.form === 'long') {
    yield* seriesOf(found, separator);
    return;
  }
  const sample = splitRecord(found.rows[0]?.text ?? '', separator, 1);
  const names = spec.hasHeader ? headerOf(found.first, separator) : sample.map((_, at) => String(at + 1));
  const times = spec.timeColumns.map((column) => (typeof column === 'number' ? column - 1 : names.indexOf(column)));
  const keys = new ScannedNames();
  for (const [at, name] of names.entries()) {
    if (times.includes(at) || name === '') continue;
    const key = keys.give(name, `column_${at + 1}`);
    const column = spec.hasHeader ? name : at + 1;
    yield { found: { key, members: { column }, sample: (sample[at] ?? '').trim() } };
  }
  yield { done: names.length, total: names.length };
}

/** The long form names tag and key in each row. */
function* seriesOf({ first, rows }: Look, separator: string): Generator<ScanStep> {
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
