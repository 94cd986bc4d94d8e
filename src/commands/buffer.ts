import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { counted } from '../base/amounts.ts';
import { systemClock } from '../base/clock.ts';
import { codeOf, TagferryError, UsageError } from '../base/errors.ts';
import { jsonText } from '../base/foreign-text.ts';
import { readDuration } from '../base/quantity.ts';
import { readCsv } from '../sources/csv/csv.ts';
import { parseIsoTime } from '../sources/iso-time.ts';
import { type Choice, choiceOf, chosen, numberOf } from './buffer-choice.ts';
import { type BufferConnection, openBufferConnection } from './buffer-connection.ts';
import { type ExportFlags, exportValues } from './buffer-export.ts';
import { type ListedSeries, listingText, type QuarantinedRow, quarantineText } from './buffer-tables.ts';
import { ProgressBar } from './progress-bar.ts';

/** Records in one piece of an import: some hundred kilobytes of text. */
const RECORDS_A_PIECE = 5_000;
const MAX_PROBLEMS_PRINTED = 20;

/** Adds `tagferry buffer`: what stands in the buffer, taken out, put in, thrown away or sent again. */
export function define(program: Command): void {
  const buffer = program
    .command('buffer')
    .description('look into the buffer, take values out as CSV or NDJSON, put a CSV in, delete, send again');
  const withBuffer = async <Result>(work: (connection: BufferConnection) => Promise<Result>): Promise<Result> => {
    const opened = await openBufferConnection(program.opts<{ config?: string }>().config, process.env);
    try {
      return await work(opened);
    } finally {
      await opened.close();
    }
  };

  chosen(buffer.command('ls').description('what stands in the buffer, series by series; bytes are about'))
    .option('--all', 'also series of which nothing stands')
    .action((flags: Choice & { all?: boolean }) =>
      withBuffer(async (to) => {
        const { series } = await to.ask<{ series: ListedSeries[] }>('buffer/ls', {
          ...choiceOf(flags),
          all: flags.all,
        });
        print(flags.json ? jsonText(series) : listingText(series));
      }),
    );

  chosen(buffer.command('export').description('copy values out; the buffer keeps them'))
    .option('--format <csv|ndjson>', 'csv unless told; a CSV comes back in by `buffer import`')
    .option('--output <file>', 'a file in place of standard output')
    .action((flags: ExportFlags) => withBuffer((to) => exportValues(to, flags)));

  buffer
    .command('import')
    .description('put the values of a CSV file into the buffer: tag or asset, key, value, timestamp, status')
    .argument('<file>', 'the CSV file; `-` is standard input')
    .option('--json', 'print the outcome as JSON')
    .action((file: string, flags: { json?: boolean }) => withBuffer((to) => importValues(to, file, flags)));

  chosen(buffer.command('purge').description('delete values that are not delivered; what is being posted stays'))
    .option('--older-than <age>', 'values with a timestamp before that: a duration like 24h or 7d, or a date')
    .option('--all', 'everything that stands in the buffer')
    .option('--yes', 'do not ask')
    .action((flags: PurgeFlags) => withBuffer((to) => purgeValues(to, flags)));

  chosen(buffer.command('quarantine').description('values that the platform refused, with its words')).action(
    (flags: Choice) =>
      withBuffer(async (to) => {
        const { quarantine } = await to.ask<{ quarantine: QuarantinedRow[] }>('buffer/quarantine', choiceOf(flags));
        print(flags.json ? jsonText(quarantine) : quarantineText(quarantine));
      }),
  );

  chosen(buffer.command('requeue').description('send quarantined values again')).action((flags: Choice) =>
    withBuffer(async (to) => {
      const answer = await to.ask<{ requeued: number }>('buffer/requeue', choiceOf(flags));
      print(
        flags.json
          ? jsonText(answer, 0)
          : `${counted(answer.requeued, 'value')} left quarantine and will be posted again.`,
      );
    }),
  );

  buffer
    .command('retarget')
    .description('values buffered for a wrong asset number go to the right one; mend tags.yaml first')
    .requiredOption('--from-asset <number>', 'the asset that they were meant for')
    .requiredOption('--to-asset <number>', 'the asset that they go to')
    .option('--json', 'print the outcome as JSON')
    .action((flags: { fromAsset: string; toAsset: string; json?: boolean }) =>
      withBuffer(async (to) => {
        const params = {
          from_asset: numberOf('--from-asset', flags.fromAsset),
          to_asset: numberOf('--to-asset', flags.toAsset),
        };
        const answer = await to.ask<{ retargeted: number; under_way: number }>('buffer/retarget', params);
        const rest =
          answer.under_way > 0
            ? ` ${counted(answer.under_way, 'value', 'was', 'were')} being posted and not moved: try again.`
            : '';
        print(
          flags.json
            ? jsonText(answer, 0)
            : `${counted(answer.retargeted, 'value', 'goes', 'go')} to asset ${flags.toAsset} now.${rest}`,
        );
        if (answer.under_way > 0) process.exitCode = 1;
      }),
    );
}

interface ImportAnswer {
  values: number;
  problems: { line: number; field: string; problem: string }[];
  problemCount: number;
}

/** Looks at the whole file before anything of it is stored; what comes by a pipe can be read only once. */
async function importValues(connection: BufferConnection, file: string, flags: { json?: boolean }): Promise<void> {
  const isFile = file !== '-';
  const passes = isFile ? [true, false] : [false];
  let total: ImportAnswer = { values: 0, problems: [], problemCount: 0 };
  for (const check of passes) {
    total = await importPass(connection, file, check, check ? 0 : total.values);
    if (total.problemCount > 0) break;
  }
  if (total.problemCount > 0) {
    const lines = total.problems
      .slice(0, MAX_PROBLEMS_PRINTED)
      .map(({ line, field, problem }) => `${file}:${line}: ${field === '' ? '' : `${field} `}${problem}`);
    const more = total.problemCount > lines.length ? [`and ${total.problemCount - lines.length} more`] : [];
    const stored = isFile ? 0 : total.values;
    if (flags.json) print(jsonText({ values: stored, problems: total.problems, problem_count: total.problemCount }, 0));
    else
      process.stderr.write(
        `${[...lines, ...more, stored > 0 ? `before that ${counted(stored, 'value', 'is', 'are')} stored` : 'nothing is stored'].join('\n')}\n`,
      );
    process.exitCode = 1;
    return;
  }
  print(
    flags.json
      ? jsonText({ values: total.values, problems: [] }, 0)
      : `${counted(total.values, 'value', 'is', 'are')} in the buffer.`,
  );
}

async function importPass(
  connection: BufferConnection,
  file: string,
  check: boolean,
  expected: number,
): Promise<ImportAnswer> {
  const bar = new ProgressBar(expected, systemClock);
  const total: ImportAnswer = { values: 0, problems: [], problemCount: 0 };
  let header: string[] | undefined;
  let records: { line: number; fields: string[] }[] = [];
  const send = async () => {
    const answer = await connection.ask<ImportAnswer>('buffer/import', { header, records, check });
    total.values += answer.values;
    total.problemCount += answer.problemCount;
    total.problems.push(...answer.problems.slice(0, 100 - total.problems.length));
    records = [];
    if (!check) bar.show(total.values);
  };
  for await (const record of readCsv(await openInput(file))) {
    if (header === undefined) {
      header = record.fields;
      continue;
    }
    records.push(record);
    if (records.length < RECORDS_A_PIECE) continue;
    await send();
    if (!check && total.problemCount > 0) return total;
  }
  if (header === undefined)
    throw new UsageError(`${file} is empty`, 'Begin with a header: tag,key,value,timestamp,status.');
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
    throw new UsageError(`${file} cannot be read (${codeOf(error) ?? 'unknown'})`);
  }
  return stream as AsyncIterable<Uint8Array>;
}

interface PurgeFlags extends Choice {
  olderThan?: string;
  all?: boolean;
  yes?: boolean;
}

async function purgeValues(connection: BufferConnection, flags: PurgeFlags): Promise<void> {
  const choice = choiceOf(flags);
  const beforeMs = flags.olderThan === undefined ? undefined : beforeOf(flags.olderThan);
  const isChosen = Object.values(choice).some((one) => one !== undefined);
  if (!isChosen && beforeMs === undefined && !flags.all) {
    throw new UsageError('purge needs to know what', 'Name --tag, --asset, --key or --older-than, or give --all.');
  }
  if (isChosen && flags.all) throw new UsageError('--all and a choice exclude each other');
  if (!flags.yes && !(await isSure(connection, choice, beforeMs))) {
    print(flags.json ? jsonText({ purged: 0 }, 0) : 'Nothing is deleted.');
    return;
  }
  const answer = await connection.ask<PurgeAnswer>('buffer/purge', { ...choice, before_ms: beforeMs, all: flags.all });
  print(flags.json ? jsonText(answer, 0) : `${counted(answer.purged, 'value', 'is', 'are')} deleted.`);
  const { failure, waiting = 0 } = answer;
  if (!failure) return;
  const rest =
    waiting === 0
      ? 'The rest was not looked at.'
      : connection.isDaemon
        ? `${counted(waiting, 'more value', 'is', 'are')} being deleted: the daemon tries again until they are. The rest was not looked at.`
        : `${counted(waiting, 'value')} more, and the rest, still stand.`;
  throw new TagferryError(`not everything could be deleted: ${failure.message}. ${rest}`, {
    code: failure.code,
    hint: failure.hint ?? 'Free some space on the file system of STATE_DIR, then purge again.',
  });
}

interface PurgeAnswer {
  /** Deleted for good. */
  purged: number;
  /** Deleted in memory; the disk refused to record it. */
  waiting?: number;
  failure?: { message: string; code: string; hint?: string };
}

async function isSure(
  connection: BufferConnection,
  choice: Record<string, unknown>,
  beforeMs: number | undefined,
): Promise<boolean> {
  if (!process.stdin.isTTY) {
    throw new UsageError('purge asks before it deletes, and there is no terminal', 'Give --yes.');
  }
  const { series } = await connection.ask<{ series: ListedSeries[] }>('buffer/ls', choice);
  const values = series.reduce((sum, row) => sum + row.values, 0);
  const which = beforeMs === undefined ? '' : ` those with a timestamp before ${new Date(beforeMs).toISOString()} of`;
  const question = `Delete${which} ${counted(values, 'value')} of ${series.length} series? They were not delivered. [y/N] `;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(question)).trim());
  } finally {
    terminal.close();
  }
}

/** A date, or so long ago. */
function beforeOf(text: string): number {
  const atMs = parseIsoTime(text);
  if (Number.isFinite(atMs)) return atMs;
  const age = readDuration(text);
  if ('value' in age) return systemClock.wallMs() - age.value;
  throw new UsageError(`--older-than ${JSON.stringify(text)} ${age.reason}`, `Or give a date: ${age.instead}.`);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
