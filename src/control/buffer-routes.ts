/** Control routes for the buffer, used by the agent and by `tagferry buffer` on a stopped agent's state folder. */
import { counted } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { StoreError, UsageError } from '../base/errors.ts';
import type { Committer } from '../buffer/client/committer.ts';
import type { SeriesListing } from '../buffer/operator/listing.ts';
import type { WithdrawalCursor } from '../buffer/operator/withdrawing.ts';
import type { Series, SeriesCatalogue } from '../buffer/series.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { Tag } from '../config/tags.ts';
import type { CsvRecord } from '../sources/csv/csv.ts';
import { importRecords } from '../sources/csv/csv-import.ts';
import type { Intake } from '../sources/intake/intake.ts';
import { SeriesNames } from '../sources/intake/series-names.ts';
import type { BufferServices, Remote } from '../store/store-api.ts';
import type { ControlRoutes } from './control-server.ts';
import { choiceIn, numberIn, type Params, positiveIn, requiredIn, textIn } from './params.ts';
import { CSV_HEADER, ValueText } from './value-text.ts';

/** A buffer whose operations are committed in steps. */
interface CommittedBuffer {
  readonly committer: Pick<Committer, 'flush' | 'update'>;
  readonly facts: StoreFacts;
}

interface OperatedBuffer extends CommittedBuffer {
  readonly operator: Remote<BufferServices['operator']>;
  readonly catalogue: SeriesCatalogue;
}

export interface BufferRoutesOptions {
  flow: OperatedBuffer;
  /** Returns the current tags. */
  tags(): ReadonlyMap<string, Tag>;
  intake: Intake;
  clock: Clock;
  /** Whether posts to an asset are held. Without a running agent, nothing is held. */
  isHeld?(asset: number): boolean;
  /** Called after values have been deleted or moved. */
  withdrawn?(): void;
}

const PAGE_SERIES = 50;
const MAX_QUARANTINE_SHOWN = 10_000;
/** Values being posted cannot be moved. Most posts finish within these passes; remaining values are reported. */
const RETARGET_PASSES = 20;
const RETARGET_PAUSE_MS = 500;
/** Maximum duration of a lease, which the caller renews. */
const MAX_COPY_LEASE_MS = 600_000;

export function bufferRoutes(options: BufferRoutesOptions): ControlRoutes {
  const { flow, clock } = options;
  const names = () => new SeriesNames(options.tags());
  const chosen = (params: Params) =>
    names().choose(flow.catalogue, {
      tag: textIn(params, 'tag'),
      key: textIn(params, 'key'),
      asset: positiveIn(params, 'asset'),
    });

  async function list(): Promise<SeriesListing[]> {
    const rows: SeriesListing[] = [];
    for (let after = 0; ; ) {
      const page = await flow.operator.list({ after, limit: PAGE_SERIES });
      rows.push(...page);
      if (page.length < PAGE_SERIES) return rows;
      after = page.at(-1)!.series;
    }
  }

  function shown(series: Series | undefined, by: SeriesNames) {
    if (!series) return {};
    const { asset, key, group, unit } = series;
    return { tag: by.tagOf(series), asset, key, group, unit: unit && 'id' in unit ? unit.id : unit };
  }

  /**
   * Returns both asset numbers. Throws `UsageError` if they are the same, or if tags.yaml does not contain the target
   * asset and `force` is not set.
   */
  function retargeting(params: Params): { from: number; to: number } {
    const from = requiredIn(params, 'from_asset');
    const to = requiredIn(params, 'to_asset');
    if (from === to) throw new UsageError('both assets are the same');
    if (params.force === true || [...options.tags().values()].some(({ asset }) => asset === to)) return { from, to };
    throw new UsageError(
      `asset ${to} is not in tags.yaml`,
      'Correct --to-asset, or add the asset to tags.yaml and run `tagferry reload`. To move the values anyway, use --force.',
    );
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
          under_way: row.inFlight,
          quarantined: quarantined.get(row.series) ?? 0,
          from: timeText(row.fromMs),
          to: timeText(row.toMs),
          bytes: row.bytes,
          held: row.held || (options.isHeld?.(row.asset) ?? false),
        }));
      return { series };
    },

    /** Estimates how many values a limit would drop, for `check`. */
    'buffer/forecast': async (params) => flow.operator.forecastDrops({ maxBytes: numberIn(params, 'max_bytes') ?? 0 }),

    /** Opens or renews the lease during which `backup` reads the files. */
    'buffer/expect-copy': async (params) => {
      const forMs = Math.min(numberIn(params, 'for_ms') ?? 0, MAX_COPY_LEASE_MS);
      return { lease: await flow.operator.leaseFiles({ lease: numberIn(params, 'lease'), forMs }) };
    },

    'buffer/end-copy': async (params) => {
      await flow.operator.endFileLease(numberIn(params, 'lease') ?? 0);
      return {};
    },

    'buffer/export': async (params, { signal, write }) => {
      const format = choiceIn(params, 'format', ['csv', 'ndjson']) ?? 'csv';
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

    'buffer/import': async (params) => {
      const { header, records, check } = importParams(params);
      return await importRecords(header, records, options.intake, check);
    },

    'buffer/purge': async (params, { signal }) => {
      const series = chosen(params);
      const beforeMs = numberIn(params, 'before_ms');
      if (series === undefined && beforeMs === undefined && params.all !== true) {
        throw new UsageError('no values selected', 'Specify a tag, an age, or --all.');
      }
      const outcome = await inSteps<WithdrawalCursor>({ flow, clock, signal }, async ({ cursor, segments }) => {
        const request = { series, beforeMs, cursor, stepSegments: segments };
        const { cursor: next, ...step } = await flow.operator.purge(request);
        return { ...step, next };
      });
      options.withdrawn?.();
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
      // Values rejected from now on stay in quarantine. Otherwise the operation might never finish.
      await flow.committer.flush();
      const { last: through } = await flow.operator.countQuarantine();
      const outcome = await inSteps<number>({ flow, clock, signal }, async ({ cursor: after }) => {
        const { after: next, ...step } = await flow.operator.requeue({ after: after ?? 0, through, series });
        return { ...step, next };
      });
      return { requeued: completed(outcome) };
    },

    /** Counts the values that `buffer/retarget` would move, and checks the target. */
    'buffer/retarget-forecast': async (params) => {
      const { from } = retargeting(params);
      const rows = (await list()).filter((row) => row.asset === from && row.live + row.backlog > 0);
      return { values: rows.reduce((sum, row) => sum + row.live + row.backlog, 0), series: rows.length };
    },

    'buffer/retarget': async (params, { signal }) => {
      const { from, to } = retargeting(params);
      const pairs = flow.catalogue.ofAsset(from).map((series) => {
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
        moved += completed(outcome);
        left = (await list()).filter((row) => row.asset === from).reduce((sum, row) => sum + row.live + row.backlog, 0);
        if (left === 0) break;
        await clock.sleep(RETARGET_PAUSE_MS, signal);
      }
      options.withdrawn?.();
      return { retargeted: moved, under_way: left };
    },
  };
}

/** Returns the number of values. Throws the failure that stopped the operation, with the progress so far. */
function completed({ values, waiting, failure }: StepsOutcome): number {
  if (!failure) return values;
  const far = `${counted(values, 'value', 'is', 'are')} moved, ${waiting} more pending until the disk accepts writes`;
  const { code, retryable, hint } = failure;
  throw new StoreError(`${failure.message}: ${far}`, {
    code,
    retryable,
    cause: failure,
    hint,
  });
}

function incompleteExport(): StoreError {
  return new StoreError(
    'the export is incomplete: undelivered values were removed from the buffer before they were read',
    {
      code: 'store.export_incomplete',
      hint: 'Search the log for `buffer.dropped` and `store.row_damaged`, or check whether values were moved to another asset. Run the export again for the remaining values.',
    },
  );
}

interface ImportParams {
  header: string[];
  records: CsvRecord[];
  check: boolean;
}

function importParams(params: Params): ImportParams {
  const { header, records, check } = params as Partial<ImportParams>;
  const isText = (fields: unknown): fields is string[] =>
    Array.isArray(fields) && fields.every((field) => typeof field === 'string');
  if (
    !isText(header) ||
    !Array.isArray(records) ||
    !records.every((record) => isText(record?.fields) && Number.isInteger(record.line))
  ) {
    throw new UsageError('an import must contain a header and records');
  }
  return { header, records, check: check === true };
}

function timeText(timeMs: number | undefined): string | undefined {
  return timeMs === undefined ? undefined : new Date(timeMs).toISOString();
}

/** Number of steps per commit. Larger commits would make the WAL large. */
const COMMIT_STEPS = 4;
/** With less free space, steps are small and committed one by one, so that the WAL fits into the disk reserve. */
const AMPLE_BYTES = 64 * 1024 * 1024;
const SMALL_STEP_SEGMENTS = 100;
/** Number of commit attempts, and the interval between them. A running agent continues to retry afterwards. */
const COMMIT_TRIES = 4;
const COMMIT_PAUSE_MS = 1_000;

interface StepsOutcome {
  /** Number of values processed and written to disk. */
  values: number;
  /** Number of values processed in memory whose commit failed. The next commit includes them. */
  waiting: number;
  /** Failure that stopped the operation. */
  failure?: StoreError;
}

interface Step<Cursor> {
  cursor: Cursor | undefined;
  /** Maximum size of the step; `undefined` if the disk has ample space. */
  segments: number | undefined;
}

/** Repeats and commits steps until a complete pass does not process any values. */
async function inSteps<Cursor>(
  { flow, clock, signal }: { flow: CommittedBuffer; clock: Clock; signal: AbortSignal },
  step: (given: Step<Cursor>) => Promise<{ values: number; next: Cursor | undefined; facts: StoreFacts }>,
): Promise<StepsOutcome> {
  let done = 0;
  let waiting = 0;
  const isTight = () => flow.facts.short || flow.facts.disk.freeBytes < AMPLE_BYTES;

  /** Returns the error if the commit fails. */
  async function commit(): Promise<StoreError | undefined> {
    for (let tries = 1; ; tries++) {
      try {
        await flow.committer.flush();
        done += waiting;
        waiting = 0;
        return undefined;
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        if (tries === COMMIT_TRIES) return error;
        await clock.sleep(COMMIT_PAUSE_MS, signal);
      }
    }
  }

  // Commit waiting values first. Otherwise the first step would be committed with them and might be too large.
  if (isTight()) {
    const failure = await commit();
    if (failure) return { values: done, waiting, failure };
  }
  for (let before = -1; before !== done; ) {
    before = done;
    let cursor: Cursor | undefined;
    let steps = 0;
    do {
      signal.throwIfAborted();
      const { values, next, facts } = await step({ cursor, segments: isTight() ? SMALL_STEP_SEGMENTS : undefined });
      flow.committer.update(facts);
      waiting += values;
      cursor = next;
      const isDue = isTight() || ++steps % COMMIT_STEPS === 0 || cursor === undefined;
      const failure = isDue && waiting > 0 ? await commit() : undefined;
      if (failure) return { values: done, waiting, failure };
    } while (cursor !== undefined);
  }
  return { values: done, waiting };
}
