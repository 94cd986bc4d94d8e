import { insteadOf } from '../../base/nearest.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { quote } from '../intake/address-book.ts';
import { type Draft, isValidTime, ON_ARRIVAL } from '../intake/draft.ts';
import type { Intake } from '../intake/intake.ts';
import { RejectedValues, UnreadableValues } from '../intake/problem-list.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { CsvRecord } from './csv.ts';

/**
 * Allowed columns in a CSV file with values. Other columns are an error, because a misspelled column would otherwise be
 * silently ignored.
 */
const COLUMNS = ['tag', 'asset', 'unit', 'group', 'key', 'value', 'timestamp', 'status'] as const;
type Column = (typeof COLUMNS)[number];

interface CsvImportResult {
  /** Number of stored values, or of valid values with `checkOnly`. */
  values: number;
  /** The first hundred problems. */
  problems: { line: number; field: string; problem: string }[];
  problemCount: number;
}

/**
 * Imports records of a CSV file into the buffer, all or none. Importing them again is harmless. Throws
 * `UnreadableValues` for unknown columns, or the sink's error.
 *
 * The columns are `tag` and `key`, or `asset`, `unit`, `group` and `key`. If a row contains both a tag and an asset,
 * the asset is used, because exports include the tag only for readability.
 */
export async function importRecords(
  header: readonly string[],
  records: readonly CsvRecord[],
  intake: Intake,
  checkOnly: boolean,
): Promise<CsvImportResult> {
  const columns = readHeader(header);
  const draft = intake.draft();
  for (const { fields } of records) addRow(draft, columns, fields);
  try {
    if (draft.problems.count === 0) {
      return { values: checkOnly ? draft.count : await intake.submit(draft, 'csv'), problems: [], problemCount: 0 };
    }
  } catch (error) {
    if (!(error instanceof RejectedValues)) throw error;
  }
  const problems = draft.problems.listed.map(({ index, field, problem }) => ({
    line: records[index]!.line,
    field,
    problem,
  }));
  return { values: 0, problems, problemCount: draft.problems.count };
}

function readHeader(fields: readonly string[]): (Column | undefined)[] {
  const columns = fields.map((field) => {
    const name = field.trim().toLowerCase();
    const known = COLUMNS.find((column) => column === name);
    if (known === undefined) {
      throw new UnreadableValues(
        `line 1: unknown column ${quote(field)}`,
        `In the header, ${insteadOf(name, COLUMNS)}.`,
      );
    }
    return known;
  });
  if (new Set(columns).size < columns.length) throw new UnreadableValues('line 1: two columns have the same name');
  const has = (name: Column) => columns.includes(name);
  if (!has('key') || !has('value') || !(has('tag') || has('asset'))) {
    throw new UnreadableValues('line 1: the header requires the columns tag or asset, key, and value');
  }
  return columns;
}

function addRow(draft: Draft, columns: readonly (Column | undefined)[], fields: readonly string[]): void {
  if (fields.length !== columns.length) {
    draft.reject('', `has ${fields.length} fields, the header has ${columns.length}`);
    return;
  }
  const row: Partial<Record<Column, string>> = {};
  for (const [at, column] of columns.entries()) {
    const text = fields[at]!.trim();
    if (column !== undefined && text !== '') row[column] = text;
  }
  const value = row.value === undefined ? Number.NaN : parseDecimal(row.value);
  const timeMs = row.timestamp === undefined ? ON_ARRIVAL : readTime(draft, row.timestamp);
  if (!Number.isFinite(value)) draft.reject('value', 'must be a number with a decimal point');
  else if (row.timestamp !== undefined && Number.isNaN(timeMs)) {
    draft.reject('timestamp', 'must be ISO 8601 or milliseconds since 1970, from 1970 to 9999');
  } else if (row.status !== undefined && !Object.hasOwn(STATUS_FLAGS, row.status)) {
    draft.reject('status', 'must be good, uncertain or bad');
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
  draft.reject(row.tag === undefined ? 'tag' : 'key', 'is missing');
  return undefined;
}

function readTime(draft: Draft, text: string): number {
  if (!/^\d{1,15}$/.test(text)) return draft.timeOf(text);
  const timeMs = Number(text);
  return isValidTime(timeMs) ? timeMs : Number.NaN;
}
