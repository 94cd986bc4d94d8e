import { insteadOf } from '../../base/nearest.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { quote } from '../address-book.ts';
import { parseDecimal } from '../decimal-text.ts';
import { type Draft, isTimeTaken, ON_ARRIVAL } from '../draft.ts';
import type { Intake } from '../intake.ts';
import { RefusedValues, UnreadableValues } from '../problem-list.ts';
import type { CsvRecord } from './csv.ts';

/** What a CSV file of values may have as columns; others are an error, because a misspelled one would be left out in silence. */
const COLUMNS = ['tag', 'asset', 'unit', 'group', 'key', 'value', 'timestamp', 'status'] as const;
type Column = (typeof COLUMNS)[number];

export interface CsvImportOptions {
  /** Only look: nothing is stored. A file is best looked at whole before any of it is stored. */
  checkOnly?: boolean;
  /** Values in one append; 5,000 unless told. */
  batchValues?: number;
  signal?: AbortSignal;
}

interface CsvProblem {
  line: number;
  field: string;
  problem: string;
}

export interface CsvImportResult {
  /** Stored; with `checkOnly` those that could be. */
  values: number;
  /** The first hundred. */
  problems: CsvProblem[];
  problemCount: number;
}

const MAX_PROBLEMS = 100;

/**
 * Puts the records of a CSV file, of which the first is the header, into the buffer, batch by batch, each on disk before the next. At the first batch with a problem
 * it stops storing and goes on checking, so that all problems come out at once; what was stored before stays, and importing it again is
 * harmless. Throws `UnreadableValues` for a header of other columns, or what the sink rejects with.
 *
 * `tag` and `key`, or `asset`, `unit`, `group` and `key`; where a row has both tag and asset, asset counts: an export names the
 * tag for people.
 */
export async function importRecords(
  records: Iterable<CsvRecord> | AsyncIterable<CsvRecord>,
  intake: Intake,
  options: CsvImportOptions = {},
): Promise<CsvImportResult> {
  const { checkOnly = false, batchValues = 5_000, signal } = options;
  const result: CsvImportResult = { values: 0, problems: [], problemCount: 0 };
  let columns: (Column | undefined)[] | undefined;
  let draft = intake.draft();
  let lines: number[] = [];
  const finishBatch = async () => {
    const stores = !checkOnly && result.problemCount === 0;
    result.values += await finish(draft, lines, intake, stores, result);
    draft = intake.draft();
    lines = [];
  };
  for await (const { line, fields } of records) {
    signal?.throwIfAborted();
    if (columns === undefined) {
      columns = readHeader(fields);
      continue;
    }
    lines.push(line);
    addRow(draft, columns, fields);
    if (lines.length >= batchValues) await finishBatch();
  }
  if (columns === undefined)
    throw new UnreadableValues('the file is empty', `Begin with a header: ${COLUMNS.join(',')}.`);
  await finishBatch();
  return result;
}

/** Gives the number of values that were taken. */
async function finish(
  draft: Draft,
  lines: readonly number[],
  intake: Intake,
  stores: boolean,
  result: CsvImportResult,
): Promise<number> {
  try {
    if (stores) return await intake.submit(draft, 'csv');
    if (draft.problems.count > 0) throw new RefusedValues(draft.problems);
    return result.problemCount === 0 ? draft.count : 0;
  } catch (error) {
    if (!(error instanceof RefusedValues)) throw error;
    result.problemCount += error.count;
    for (const { index, field, problem } of error.problems.slice(0, MAX_PROBLEMS - result.problems.length)) {
      result.problems.push({ line: lines[index]!, field, problem });
    }
    return 0;
  }
}

function readHeader(fields: readonly string[]): (Column | undefined)[] {
  const columns = fields.map((field) => {
    const name = field
      .replace(/^\ufeff/, '')
      .trim()
      .toLowerCase();
    const known = COLUMNS.find((column) => column === name);
    if (known === undefined) {
      throw new UnreadableValues(`line 1: no column is called ${quote(field)}`, `Please ${insteadOf(name, COLUMNS)}.`);
    }
    return known;
  });
  if (new Set(columns).size < columns.length) throw new UnreadableValues('line 1: two columns have the same name');
  const has = (name: Column) => columns.includes(name);
  if (!has('key') || !has('value') || !(has('tag') || has('asset'))) {
    throw new UnreadableValues('line 1: the header needs tag or asset, key, and value');
  }
  return columns;
}

function addRow(draft: Draft, columns: readonly (Column | undefined)[], fields: readonly string[]): void {
  if (fields.length !== columns.length) {
    draft.refuse('', `has ${fields.length} fields where the header has ${columns.length}`);
    return;
  }
  const row: Partial<Record<Column, string>> = {};
  for (const [at, column] of columns.entries()) {
    const text = fields[at]!.trim();
    if (column !== undefined && text !== '') row[column] = text;
  }
  const value = row.value === undefined ? Number.NaN : parseDecimal(row.value, 0, row.value.length);
  const timeMs = row.timestamp === undefined ? ON_ARRIVAL : readTime(draft, row.timestamp);
  if (!Number.isFinite(value)) draft.refuse('value', 'must be a number, with a point where it has decimals');
  else if (row.timestamp !== undefined && Number.isNaN(timeMs)) {
    draft.refuse('timestamp', 'must be ISO 8601 or milliseconds since 1970, from 1970 to 9999');
  } else if (row.status !== undefined && !Object.hasOwn(STATUS_FLAGS, row.status)) {
    draft.refuse('status', 'must be good, uncertain or bad');
  } else {
    const flag = row.status === undefined ? 0 : STATUS_FLAGS[row.status as keyof typeof STATUS_FLAGS];
    const slot = slotOf(draft, row);
    if (slot !== undefined) draft.add(slot, value, timeMs, flag);
  }
}

function slotOf(draft: Draft, row: Partial<Record<Column, string>>) {
  if (row.asset !== undefined) {
    const { asset, unit, group, key } = row;
    const code = unit === undefined || /^\d+$/.test(unit) ? undefined : { code: unit };
    return draft.slotOfAsset({ asset: Number(asset), unit: code ?? (unit && Number(unit)), group, key });
  }
  if (row.tag !== undefined && row.key !== undefined) return draft.slotOfTag(row.tag, row.key);
  draft.refuse(row.tag === undefined ? 'tag' : 'key', 'is missing');
  return undefined;
}

function readTime(draft: Draft, text: string): number {
  if (!/^\d{1,15}$/.test(text)) return draft.timeOf(text);
  const timeMs = Number(text);
  return isTimeTaken(timeMs) ? timeMs : Number.NaN;
}
