import { insteadOf } from '../../base/nearest.ts';
import { addJsonValue } from '../formats/json-values.ts';
import { quote } from '../intake/address-book.ts';
import type { Draft } from '../intake/draft.ts';
import type { Intake } from '../intake/intake.ts';
import { RejectedValues, UnreadableValues } from '../intake/problem-list.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { CsvRecord } from './csv.ts';

/** Other columns are an error, because a misspelled column would otherwise be silently ignored. */
const COLUMNS = ['tag', 'asset', 'unit', 'group', 'key', 'value', 'timestamp', 'status'];

interface CsvImportResult {
  /** Number of stored values, or of valid values with `checkOnly`. */
  values: number;
  /** The first hundred problems. */
  problems: { line: number; field: string; problem: string }[];
  problemCount: number;
}

/**
 * Imports records of a CSV file into the buffer, all or none. Importing them again is harmless. A row is a value in the
 * form of pushed JSON, whose members are the columns. Throws `UnreadableValues` for unknown columns, or the sink's error.
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
  const { listed, count } = draft.problems;
  const problems = listed.map(({ index, field, problem }) => ({ line: records[index]!.line, field, problem }));
  return { values: 0, problems, problemCount: count };
}

function readHeader(fields: readonly string[]): string[] {
  const columns = fields.map((field) => field.trim().toLowerCase());
  const unknown = columns.findIndex((column) => !COLUMNS.includes(column));
  if (unknown >= 0) {
    const instead = insteadOf(columns[unknown]!, COLUMNS);
    throw new UnreadableValues(`line 1: unknown column ${quote(fields[unknown]!)}`, `In the header, ${instead}.`);
  }
  if (new Set(columns).size < columns.length) throw new UnreadableValues('line 1: two columns have the same name');
  const has = (name: string) => columns.includes(name);
  if (!has('key') || !has('value') || !(has('tag') || has('asset'))) {
    throw new UnreadableValues('line 1: the header requires the columns tag or asset, key, and value');
  }
  return columns;
}

function addRow(draft: Draft, columns: readonly string[], fields: readonly string[]): void {
  if (fields.length !== columns.length) {
    draft.reject('', `has ${fields.length} fields, the header has ${columns.length}`);
    return;
  }
  const texts = columns.map((column, at) => [column, fields[at]!.trim()]).filter(([, text]) => text !== '');
  const { tag, asset, unit, value = '', timestamp, ...others }: Record<string, string> = Object.fromEntries(texts);
  const number = parseDecimal(value);
  if (/^[+-]?[\d.]*,\d+$/.test(value)) {
    draft.reject('value', 'must be a number with a decimal point');
    return;
  }
  addJsonValue(draft, {
    ...others,
    // Exports include the tag of an asset only for readability.
    ...(asset === undefined ? { tag } : { asset: Number(asset) }),
    ...(unit === undefined ? {} : { unit: /^\d+$/.test(unit) ? Number(unit) : { code: unit } }),
    ...(value === '' ? {} : { value: Number.isNaN(number) ? value : number }),
    ...(timestamp === undefined ? {} : { timestamp: /^\d{1,15}$/.test(timestamp) ? Number(timestamp) : timestamp }),
  });
}
