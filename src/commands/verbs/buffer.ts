import type { Command } from 'commander';
import { counted } from '../../base/amounts.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { type ExportFlags, exportValues } from '../buffer/export.ts';
import { importValues } from '../buffer/import.ts';
import {
  type ListedSeries,
  type QuarantinedRow,
  quarantineTable,
  type SeriesFlags,
  selectionOf,
  seriesTable,
  withSeriesOptions,
} from '../buffer/series.ts';
import { type BufferConnection, openBufferConnection } from '../connection/buffer-connection.ts';
import { configOf } from '../connection/control-client.ts';
import { confirm, confirmChange, positiveInteger, timeOption } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

/** Adds `tagferry buffer`. */
export function define(program: Command): void {
  const buffer = program.command('buffer').description('list, export, import, delete and requeue buffered values');
  const withBuffer = async (work: (connection: BufferConnection) => Promise<void>): Promise<void> => {
    const connection = await openBufferConnection(configOf(program), process.env);
    try {
      await work(connection);
    } finally {
      await connection.close();
    }
  };

  withSeriesOptions(buffer.command('ls').description('list buffered values by series, with approximate sizes'))
    .option('--all', 'include series without buffered values')
    .action((flags: SeriesFlags & { all?: boolean }) =>
      withBuffer(async (connection) => {
        const params = { ...selectionOf(flags), all: flags.all };
        const { series } = await connection.ask<{ series: ListedSeries[] }>('buffer/ls', params);
        print(flags.json ? jsonText(series) : seriesTable(series));
      }),
    );

  withSeriesOptions(
    buffer
      .command('export')
      .description('export buffered values as CSV or NDJSON without removing them from the buffer'),
  )
    .option('--format <csv|ndjson>', 'output format (default: csv, which `buffer import` accepts)')
    .option('--output <file>', 'output file (default: standard output)')
    .action((flags: ExportFlags) => withBuffer((connection) => exportValues(connection, flags)));

  buffer
    .command('import')
    .description('import a CSV file with the columns tag or asset, key, value, timestamp, status')
    .argument('<file>', 'CSV file, or - for standard input')
    .option('--json', 'print the result as JSON')
    .action((file: string, flags: { json?: boolean }) =>
      withBuffer((connection) => importValues(connection, file, flags)),
    );

  withSeriesOptions(buffer.command('purge').description('delete undelivered values, except those being posted'))
    .option('--older-than <age>', 'only values older than a duration (24h, 7d) or with a timestamp before a date')
    .option('--all', 'delete all buffered values')
    .option('--yes', 'skip the confirmation')
    .action((flags: PurgeFlags) => withBuffer((connection) => purgeValues(connection, flags)));

  withSeriesOptions(
    buffer.command('quarantine').description('list values that the platform rejected, with its responses'),
  ).action((flags: SeriesFlags) =>
    withBuffer(async (connection) => {
      const params = selectionOf(flags);
      const { quarantine } = await connection.ask<{ quarantine: QuarantinedRow[] }>('buffer/quarantine', params);
      print(flags.json ? jsonText(quarantine) : quarantineTable(quarantine));
    }),
  );

  withSeriesOptions(buffer.command('requeue').description('post quarantined values again')).action(
    (flags: SeriesFlags) =>
      withBuffer(async (connection) => {
        const result = await connection.ask<{ requeued: number }>('buffer/requeue', selectionOf(flags));
        const text = `Requeued ${counted(result.requeued, 'value')} from quarantine.`;
        print(flags.json ? jsonText(result, 0) : text);
      }),
  );

  buffer
    .command('retarget')
    .description('move buffered values from a wrong asset number to the correct one; correct tags.yaml first')
    .requiredOption('--from-asset <number>', 'asset number the values are stored under now')
    .requiredOption('--to-asset <number>', 'correct asset number')
    .option('--force', 'move the values even if tags.yaml does not contain the correct asset')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print the result as JSON')
    .action((flags: RetargetFlags) =>
      withBuffer(async (connection) => {
        const params = {
          from_asset: positiveInteger('--from-asset', flags.fromAsset),
          to_asset: positiveInteger('--to-asset', flags.toAsset),
          force: flags.force,
        };
        const found = await connection.ask<{ values: number; series: number }>('buffer/retarget-forecast', params);
        const moving = `${counted(found.values, 'undelivered value')} of ${found.series} series`;
        const question = `Move ${moving} from asset ${params.from_asset} to asset ${params.to_asset}?`;
        if (!(await confirmChange(question, flags.yes))) return;
        const result = await connection.ask<{ retargeted: number; under_way: number }>('buffer/retarget', params);
        const { retargeted, under_way: posting } = result;
        const rest =
          posting > 0 ? ` ${counted(posting, 'value', 'is', 'are')} being posted: run the command again.` : '';
        print(
          flags.json ? jsonText(result, 0) : `Moved ${counted(retargeted, 'value')} to asset ${flags.toAsset}.${rest}`,
        );
        if (posting > 0) process.exitCode = 1;
      }),
    );
}

interface RetargetFlags {
  fromAsset: string;
  toAsset: string;
  force?: boolean;
  yes?: boolean;
  json?: boolean;
}

export interface PurgeFlags extends SeriesFlags {
  olderThan?: string;
  all?: boolean;
  yes?: boolean;
}

interface PurgeResult {
  /** Number of values deleted permanently. */
  purged: number;
  /** Number of values deleted in memory whose deletion could not be written to disk. */
  waiting?: number;
  failure?: { message: string; code: string; hint?: string };
}

/**
 * Deletes undelivered values, except those that are being posted. Throws the disk error if not all values could be
 * deleted.
 */
export async function purgeValues(connection: BufferConnection, flags: PurgeFlags): Promise<void> {
  const selection = selectionOf(flags);
  const beforeMs = flags.olderThan === undefined ? undefined : timeOption('--older-than', flags.olderThan);
  const isSelected = Object.values(selection).some((one) => one !== undefined);
  if (!isSelected && beforeMs === undefined && !flags.all) {
    throw new UsageError('purge requires a selection', 'Use --tag, --asset, --key or --older-than, or --all.');
  }
  if (isSelected && flags.all) throw new UsageError('--all cannot be combined with --tag, --asset or --key');
  if (!flags.yes && !(await confirm(await questionFor(connection, selection, beforeMs), false))) {
    print(flags.json ? jsonText({ purged: 0 }, 0) : 'Nothing was deleted.');
    return;
  }
  const params = { ...selection, before_ms: beforeMs, all: flags.all };
  const result = await connection.ask<PurgeResult>('buffer/purge', params);
  print(flags.json ? jsonText(result, 0) : `Deleted ${counted(result.purged, 'value')}.`);
  if (result.failure) throw incomplete(result.failure, result.waiting ?? 0, connection.isAgent);
}

function incomplete(failure: NonNullable<PurgeResult['failure']>, waiting: number, isAgent: boolean): TagferryError {
  const rest =
    waiting === 0
      ? 'The remaining values were not processed.'
      : isAgent
        ? `The agent retries the deletion of ${counted(waiting, 'more value')}. The remaining values were not processed.`
        : `${counted(waiting, 'value')} and the remaining values were not deleted.`;
  return new TagferryError(`cannot delete all values: ${failure.message}. ${rest}`, {
    code: failure.code,
    hint: failure.hint ?? 'Free up space on the file system of STATE_DIR, then purge again.',
  });
}

async function questionFor(
  connection: BufferConnection,
  selection: Record<string, unknown>,
  beforeMs: number | undefined,
): Promise<string> {
  const { series } = await connection.ask<{ series: ListedSeries[] }>('buffer/ls', selection);
  const values = series.reduce((sum, row) => sum + row.values, 0);
  const of = `${counted(values, 'undelivered value')} of ${series.length} series`;
  if (beforeMs === undefined) return `Delete ${of}?`;
  return `Delete values with a timestamp before ${new Date(beforeMs).toISOString()}, out of ${of}?`;
}
