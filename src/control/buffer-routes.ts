/** What `tagferry buffer` asks, of a running daemon through the control socket or of a state folder that it opened itself. */

import { counted } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { StoreError, UsageError } from '../base/errors.ts';
import type { SeriesListing } from '../buffer/operator/listing.ts';
import type { WithdrawalCursor } from '../buffer/operator/withdrawing.ts';
import type { Series } from '../buffer/series.ts';
import type { Tag } from '../config/tags.ts';
import type { CsvRecord } from '../sources/csv/csv.ts';
import { importRecords } from '../sources/csv/csv-import.ts';
import type { Intake } from '../sources/intake.ts';
import { type SeriesChoice, SeriesNames } from '../sources/series-names.ts';
import { inSteps, type StepsOutcome } from './buffer-steps.ts';
import type { ControlRoutes } from './control-server.ts';
import type { OperatedBuffer } from './operated-parts.ts';
import { CSV_HEADER, type ExportFormat, ValueText } from './value-text.ts';

export interface BufferRoutesOptions {
  flow: OperatedBuffer;
  /** The tags as they are now. */
  tags(): ReadonlyMap<string, Tag>;
  intake: Intake;
  clock: Clock;
  /** Whether the platform does not let us post to an asset now; nothing is held where this is left out. */
  isHeld?(asset: number): boolean;
  /** Values of these series were deleted or moved. */
  withdrawn?(series: readonly Series[]): void;
}

const LISTED_A_PAGE = 50;
const MAX_QUARANTINE_SHOWN = 10_000;
/** What is under way when values are retargeted ends within some seconds, or it stays and is said. */
const RETARGET_PASSES = 20;
const RETARGET_PAUSE_MS = 500;
/** The caller renews its lease before that. */
const MAX_COPY_LEASE_MS = 600_000;

export function bufferRoutes(options: BufferRoutesOptions): ControlRoutes {
  const { flow, clock } = options;
  const names = () => new SeriesNames(options.tags());
  const chosen = (params: Record<string, unknown>) => names().choose(flow.catalogue, choiceOf(params));

  async function list(): Promise<SeriesListing[]> {
    const rows: SeriesListing[] = [];
    for (let after = 0; ; ) {
      const page = await flow.operator.list({ after, limit: LISTED_A_PAGE });
      rows.push(...page);
      if (page.length < LISTED_A_PAGE) return rows;
      after = page.at(-1)!.series;
    }
  }

  function shown(series: Series | undefined, by: SeriesNames) {
    if (!series) return {};
    const { asset, key, group, unit } = series;
    return { tag: by.tagOf(series), asset, key, group, unit: unit && 'id' in unit ? unit.id : unit };
  }

  return {
    'buffer/ls': async (params) => {
      const by = names();
      const choice = chosen(params);
      if (choice?.length === 0) return { series: [] };
      const wanted = choice && new Set(choice);
      const quarantined = new Map((await flow.operator.countQuarantine()).series.map((row) => [row.series, row.count]));
      const series = (await list())
        .filter((row) => !wanted || wanted.has(row.series))
        .filter((row) => params.all === true || row.live + row.backlog + (quarantined.get(row.series) ?? 0) > 0)
        .map((row) => ({
          ...shown(flow.catalogue.get(row.series), by),
          values: row.live + row.backlog,
          live: row.live,
          backlog: row.backlog,
          under_way: row.underWay,
          quarantined: quarantined.get(row.series) ?? 0,
          from: timeText(row.fromMs),
          to: timeText(row.toMs),
          bytes: row.bytes,
          held: row.held || (options.isHeld?.(row.asset) ?? false),
        }));
      return { series };
    },

    /** What a bound would drop, about; for `check`. */
    'buffer/forecast': async (params) => flow.operator.forecastDrops({ maxBytes: numberIn(params, 'max_bytes') ?? 0 }),

    /** Opens or renews the lease of `backup`, which reads the files itself. */
    'buffer/expect-copy': async (params) => {
      const forMs = Math.min(numberIn(params, 'for_ms') ?? 0, MAX_COPY_LEASE_MS);
      return { lease: await flow.operator.expectCopy({ lease: numberIn(params, 'lease'), forMs }) };
    },

    'buffer/end-copy': async (params) => {
      await flow.operator.endCopy(numberIn(params, 'lease') ?? 0);
      return {};
    },

    'buffer/export': async (params, { signal, write }) => {
      const format = formatOf(params);
      const text = new ValueText(flow.catalogue, names(), format);
      const id = await flow.operator.beginExport({ series: chosen(params) });
      try {
        if (format === 'csv') await write(CSV_HEADER);
        for (;;) {
          signal.throwIfAborted();
          const { columns, done, isComplete } = await flow.operator.exportPage(id);
          if (columns.length > 0) await write(text.lines(columns));
          if (done && !isComplete) throw incompleteExport();
          if (done) return undefined;
        }
      } finally {
        await flow.operator.endExport(id);
      }
    },

    'buffer/import': async (params, { signal }) => {
      const { header, records, check } = importParams(params);
      return importRecords([{ line: 1, fields: header }, ...records], options.intake, { checkOnly: check, signal });
    },

    'buffer/purge': async (params, { signal }) => {
      const series = chosen(params);
      const beforeMs = numberIn(params, 'before_ms');
      if (series === undefined && beforeMs === undefined && params.all !== true) {
        throw new UsageError('purge needs to know what', 'Name a tag, an age, or --all.');
      }
      const outcome = await inSteps<WithdrawalCursor>({ flow, clock, signal }, async ({ cursor, segments }) => {
        const request = { series, beforeMs, cursor, stepSegments: segments };
        const { cursor: next, ...step } = await flow.operator.purge(request);
        return { ...step, next };
      });
      options.withdrawn?.(series?.map((id) => flow.catalogue.get(id)!) ?? [...flow.catalogue.all()]);
      const { values, waiting, failure } = outcome;
      if (!failure) return { purged: values };
      const { message, code, hint } = failure;
      return { purged: values, waiting, failure: { message, code, hint } };
    },

    'buffer/quarantine': async (params) => {
      const series = chosen(params);
      const by = names();
      const found: unknown[] = [];
      for (let after: number | undefined = 0; after !== undefined && found.length < MAX_QUARANTINE_SHOWN; ) {
        const page: Awaited<ReturnType<typeof flow.operator.searchQuarantine>> = await flow.operator.searchQuarantine({
          after,
          series,
        });
        for (const row of page.rows) {
          found.push({
            id: row.id,
            ...shown(flow.catalogue.get(row.series), by),
            values: row.count,
            refused_at: timeText(row.atMs),
            status: row.status,
            message: row.message,
            first: row.timeMs.map((timeMs, i) => ({ timestamp: timeText(timeMs), value: row.value[i] })),
            ...(row.damaged ? { damaged: true } : {}),
          });
        }
        ({ after } = page);
      }
      return { quarantine: found };
    },

    'buffer/requeue': async (params, { signal }) => {
      const series = chosen(params);
      // What is refused while this runs stays: it would only go round.
      await flow.committer.flush();
      const { last: through } = await flow.operator.countQuarantine();
      const outcome = await inSteps<number>({ flow, clock, signal }, async ({ cursor: after }) => {
        const { after: next, ...step } = await flow.operator.requeue({ after: after ?? 0, through, series });
        return { ...step, next };
      });
      return { requeued: whole(outcome) };
    },

    'buffer/retarget': async (params, { signal }) => {
      const from = assetIn(params, 'from_asset');
      const to = assetIn(params, 'to_asset');
      if (from === to) throw new UsageError('both assets are the same');
      const withdrawn = flow.catalogue.ofAsset(from);
      const pairs = withdrawn.map((series) => {
        const id = flow.catalogue.idOf(to, series.key, series.group, series.unit);
        return { from: series.id, to: flow.catalogue.get(id)! };
      });
      let moved = 0;
      let left = 0;
      for (let pass = 0; pass < RETARGET_PASSES && pairs.length > 0; pass++) {
        const outcome = await inSteps<WithdrawalCursor>({ flow, clock, signal }, async ({ cursor, segments }) => {
          const request = { pairs, cursor, stepSegments: segments };
          const { cursor: next, ...step } = await flow.operator.retarget(request);
          return { ...step, next };
        });
        moved += whole(outcome);
        left = (await list()).filter((row) => row.asset === from).reduce((sum, row) => sum + row.live + row.backlog, 0);
        if (left === 0) break;
        await clock.sleep(RETARGET_PAUSE_MS, signal);
      }
      options.withdrawn?.(withdrawn);
      return { retargeted: moved, under_way: left };
    },
  };
}

/** The values of steps that all came to an end; throws what stopped them, with how far they came. */
function whole({ values, waiting, failure }: StepsOutcome): number {
  if (!failure) return values;
  const far = `${counted(values, 'value', 'is', 'are')} moved, ${waiting} more to be moved when the disk lets it`;
  const { code, retryable, hint } = failure;
  throw new StoreError(`${failure.message}: ${far}`, {
    code,
    retryable,
    cause: failure,
    ...(hint === undefined ? {} : { hint }),
  });
}

function incompleteExport(): StoreError {
  return new StoreError('the export is incomplete: values left the buffer undelivered before they were read', {
    code: 'store.export_incomplete',
    hint: 'The log has `buffer.dropped` or `store.row_damaged`, or values moved to another asset. Export again for the rest.',
  });
}

function choiceOf(params: Record<string, unknown>): SeriesChoice {
  const { tag, key } = params;
  if (tag !== undefined && typeof tag !== 'string') throw new UsageError('tag is no name');
  if (key !== undefined && typeof key !== 'string') throw new UsageError('key is no name');
  return { tag, key, asset: params.asset === undefined ? undefined : assetIn(params, 'asset') };
}

function formatOf(params: Record<string, unknown>): ExportFormat {
  if (params.format === 'csv' || params.format === 'ndjson') return params.format;
  throw new UsageError('the format is csv or ndjson');
}

function numberIn(params: Record<string, unknown>, name: string): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new UsageError(`${name} is no number`);
  return value;
}

function assetIn(params: Record<string, unknown>, name: string): number {
  const asset = numberIn(params, name);
  if (asset === undefined || !Number.isSafeInteger(asset) || asset <= 0) {
    throw new UsageError(`${name.replace('_', '-')} is the number of an asset`);
  }
  return asset;
}

interface ImportParams {
  header: string[];
  records: CsvRecord[];
  check: boolean;
}

function importParams(params: Record<string, unknown>): ImportParams {
  const { header, records, check } = params as Partial<ImportParams>;
  const isText = (fields: unknown): fields is string[] =>
    Array.isArray(fields) && fields.every((field) => typeof field === 'string');
  if (
    !isText(header) ||
    !Array.isArray(records) ||
    !records.every((record) => isText(record?.fields) && Number.isInteger(record.line))
  ) {
    throw new UsageError('an import is a header and records of fields');
  }
  return { header, records, check: check === true };
}

function timeText(timeMs: number | undefined): string | undefined {
  return timeMs === undefined ? undefined : new Date(timeMs).toISOString();
}
