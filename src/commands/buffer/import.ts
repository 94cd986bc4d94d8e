import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { counted } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import { codeOf, UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { readCsv } from '../../sources/csv/csv.ts';
import type { BufferConnection } from '../connection/buffer-connection.ts';
import { ProgressBar, print } from '../terminal/output.ts';

/** Records per import request, which is several hundred kilobytes of text. */
const RECORDS_PER_REQUEST = 5_000;
const MAX_PROBLEMS = 100;
const MAX_PROBLEMS_PRINTED = 20;

interface ImportResult {
  values: number;
  problems: { line: number; field: string; problem: string }[];
  problemCount: number;
}

/**
 * Checks the whole file before any value is stored. Standard input can be read only once, so values before an error are
 * stored.
 */
export async function importValues(
  connection: BufferConnection,
  file: string,
  flags: { json?: boolean },
): Promise<void> {
  const isFile = file !== '-';
  let result = isFile ? await importOnce(connection, file, true, 0) : undefined;
  if (!result?.problemCount) result = await importOnce(connection, file, false, result?.values ?? 0);
  const { values, problems, problemCount } = result;
  if (problemCount === 0) {
    print(flags.json ? jsonText({ values, problems: [] }, 0) : `Imported ${counted(values, 'value')}.`);
    return;
  }
  process.exitCode = 1;
  const stored = isFile ? 0 : values;
  if (flags.json) return print(jsonText({ values: stored, problems, problem_count: problemCount }, 0));
  const lines = problems
    .slice(0, MAX_PROBLEMS_PRINTED)
    .map(({ line, field, problem }) => `${file}:${line}: ${field === '' ? '' : `${field} `}${problem}`);
  if (problemCount > lines.length) lines.push(`and ${problemCount - lines.length} more`);
  lines.push(stored > 0 ? `${counted(stored, 'value')} imported before the first error.` : 'Nothing was imported.');
  process.stderr.write(`${lines.join('\n')}\n`);
}

/** `expected`: expected number of values, for the progress bar. */
async function importOnce(
  connection: BufferConnection,
  file: string,
  check: boolean,
  expected: number,
): Promise<ImportResult> {
  const bar = new ProgressBar(expected, systemClock);
  const total: ImportResult = { values: 0, problems: [], problemCount: 0 };
  let header: string[] | undefined;
  let records: { line: number; fields: string[] }[] = [];
  const send = async () => {
    const result = await connection.ask<ImportResult>('buffer/import', { header, records, check });
    total.values += result.values;
    total.problemCount += result.problemCount;
    total.problems.push(...result.problems.slice(0, MAX_PROBLEMS - total.problems.length));
    records = [];
    if (!check) bar.show(total.values);
  };
  for await (const record of readCsv(await openInput(file))) {
    if (header === undefined) {
      header = record.fields;
      continue;
    }
    records.push(record);
    if (records.length < RECORDS_PER_REQUEST) continue;
    await send();
    if (!check && total.problemCount > 0) return total;
  }
  if (header === undefined)
    throw new UsageError(`${file} is empty`, 'Start the file with a header: tag,key,value,timestamp,status.');
  await send();
  if (!check) bar.end(total.values);
  return total;
}

async function openInput(file: string): Promise<AsyncIterable<Uint8Array>> {
  if (file === '-') return process.stdin as AsyncIterable<Uint8Array>;
  const stream = createReadStream(file);
  try {
    await once(stream, 'open');
  } catch (error) {
    throw new UsageError(`cannot read ${file} (${codeOf(error) ?? 'unknown'})`);
  }
  return stream as AsyncIterable<Uint8Array>;
}
