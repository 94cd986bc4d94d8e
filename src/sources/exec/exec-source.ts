/**
 * A program whose standard output is in the push format. Its output is handled like a request with `partial`: valid
 * lines are accepted. Values configured for this source in tags.yaml are shaped by its gate; all others are stored
 * unchanged. While writes to the disk fail, the output is not read, so the program blocks on a full pipe.
 *
 * Without `every`, the program runs continuously. It is restarted when it exits or prints nothing for `timeout`. With
 * `every`, it is run at this interval and ended after `timeout`.
 */
import { isUtf8 } from 'node:buffer';
import type { Readable } from 'node:stream';
import { bytesText, durationText } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import { MemoryBudget } from '../../base/inbound/memory-budget.ts';
import type { RunEnd } from '../../base/programs/program-run.ts';
import { ScheduledProgram } from '../../base/programs/scheduled.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import { STATUS_MASK } from '../../buffer/format/value-columns.ts';
import { readNdjsonBody } from '../formats/json-values.ts';
import { readLineProtocol } from '../formats/line-protocol.ts';
import { ProgramOutputLog } from '../formats/program-output-log.ts';
import { ValueStream } from '../formats/value-stream.ts';
import type { Draft, Interceptor } from '../intake/draft.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

export interface ExecSpec {
  /** Program and arguments. */
  command: readonly [string, ...string[]];
  /** Output format: NDJSON as in `POST /v1/values`, or line protocol with times in nanoseconds. */
  format: 'ndjson' | 'lines';
  /** Maximum duration of a run with `every`, otherwise maximum time without output; in milliseconds. */
  timeoutMs?: number;
}

/** Empty, because each output line specifies its value. */
export type ExecValue = Readonly<Record<never, never>>;

/**
 * Limit for values that are not on disk yet, in bytes. Three quarters of the limit are available to large bodies,
 * enough for the values of one 1 MiB line (5.5 MB).
 */
const MAX_BYTES = 10 * 1024 * 1024;
/** Minimum default for the duration of a run. */
const MIN_DEFAULT_TIMEOUT_MS = 60_000;
/** Maximum output of one run with `every`. */
const MAX_RUN_BYTES = 16_000_000;
/** Time without a rejected line after which the output counts as valid again. */
const VALID_AGAIN_MS = 60_000;
const QUALITIES: readonly (Quality | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];
const NANOSECONDS = { msOfUnit: 1e-6, isUnitGuessed: true, tagFrom: undefined };

export class ExecSource implements RunningSource {
  #context: SourceContext<ExecSpec, ExecValue>;
  #points: ReadonlyMap<number, Point<ExecValue>>;
  readonly #program: SupervisedProgram | ScheduledProgram;
  readonly #trouble: TroubleLog;
  readonly #outputLog: ProgramOutputLog;
  /** Aborted when the output is no longer read. */
  readonly #end = new AbortController();
  /** Monotonic time of the latest rejected line. */
  #rejectedMs = Number.NEGATIVE_INFINITY;

  constructor(context: SourceContext<ExecSpec, ExecValue>) {
    const { source, clock, log, instance } = context;
    this.#context = context;
    this.#points = bySeries(context.points);
    this.#trouble = new TroubleLog(log, clock);
    this.#outputLog = new ProgramOutputLog(source.name, log, clock);
    const { command, timeoutMs } = source.spec;
    const { everyMs } = source;
    const options = {
      command,
      instance: `${instance}-${source.name}`,
      clock,
      readOutput: (output: Readable) => this.#readOutput(output),
      onErrorLine: (line: string) => this.#outputLog.write(line),
    };
    this.#program =
      everyMs > 0
        ? new ScheduledProgram({
            ...options,
            everyMs,
            timeoutMs: timeoutMs ?? Math.max(everyMs, MIN_DEFAULT_TIMEOUT_MS),
            isReady: () => !this.#context.gate.isFull,
            ended: (end) => this.#reportRun(end),
            missed: (runs) => this.#reportMissed(runs),
          })
        : new SupervisedProgram({
            ...options,
            started: () => context.status.connect(),
            ended: (how, againInMs) => this.#reportExit(how, againInMs),
          });
  }

  start(): void {
    this.#program.start();
  }

  async stop(): Promise<void> {
    await this.#program.stop();
    this.#end.abort();
  }

  /** Applies a changed set of values without restarting the program. */
  async follow(context: SourceContext<never, never>): Promise<boolean> {
    const next = context as SourceContext as SourceContext<ExecSpec, ExecValue>;
    const runOf = ({ spec, everyMs }: SourceContext<ExecSpec, ExecValue>['source']) => JSON.stringify([spec, everyMs]);
    if (runOf(this.#context.source) !== runOf(next.source)) return false;
    this.#context = next;
    this.#points = bySeries(next.points);
    return true;
  }

  /** Runs a program with `every` immediately. */
  poll(): void {
    if (this.#program instanceof ScheduledProgram) this.#program.runNow();
  }

  async #readOutput(output: Readable): Promise<void> {
    const { intake } = this.#context;
    const stream = new ValueStream({
      draft: (textBytes) => intake.draft({ isPartial: true, textBytes }),
      read: (bytes, draft) => this.#read(bytes, draft),
      submit: (draft) => this.#submit(draft),
      memory: new MemoryBudget({ maxBytes: MAX_BYTES, bodies: 1 }).reserve(),
      signal: this.#end.signal,
    });
    await stream.read(this.#limited(output));
  }

  #limited(output: Readable): AsyncIterator<Buffer> {
    const chunks = output[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    const { clock, source } = this.#context;
    const program = this.#program;
    if (program instanceof ScheduledProgram) return withSizeLimit(chunks, MAX_RUN_BYTES, (why) => program.endRun(why));
    const { timeoutMs } = source.spec;
    if (timeoutMs === undefined) return chunks;
    return withSilenceLimit(chunks, timeoutMs, clock, (why) => program.restart(why));
  }

  /** Replaces invalid UTF-8, so that only the affected line is rejected. */
  #read(bytes: Buffer, draft: Draft): void {
    const text = isUtf8(bytes) ? bytes : Buffer.from(bytes.toString('utf8'));
    if (this.#context.source.spec.format === 'ndjson') readNdjsonBody(text, draft);
    else readLineProtocol(text, NANOSECONDS, draft);
  }

  async #submit(draft: Draft): Promise<number> {
    const { gate, source, clock } = this.#context;
    const points = this.#points;
    const readings: Reading[] = [];
    const interceptor: Interceptor = {
      has: (series) => points.has(series),
      accept: (series, raw, timeMs, status) =>
        readings.push({ point: points.get(series)!, raw, timeMs, quality: QUALITIES[status & STATUS_MASK] }),
    };
    const columns = draft.finish(interceptor);
    const { count, listed } = draft.problems;
    this.#context.status.errors += count;
    if (count === 0) this.#noteValid(draft.accepted);
    else {
      this.#rejectedMs = clock.monotonicMs();
      const { field = '', problem = '' } = listed[0] ?? {};
      gate.status.reject(plain(field === '' ? problem : `${field}: ${problem}`), count);
      const fields = { source: source.name, refused: count, field, error: plain(problem) };
      this.#trouble.report({ event: 'exec.refused', ...fields }, 'some values from a program were rejected');
    }
    gate.record(readings);
    await gate.writeColumns(columns);
    return draft.accepted;
  }

  #noteValid(values: number): void {
    const { source, clock } = this.#context;
    if (values === 0 || clock.monotonicMs() - this.#rejectedMs < VALID_AGAIN_MS) return;
    this.#trouble.recovered('exec.refused', { source: source.name }, 'all values from a program are valid again');
  }

  #reportExit(how: string, againInMs: number): void {
    this.#fail(how);
    const fields = { ...this.#named(), error: how, again_in_ms: againInMs };
    this.#context.log.warn({ event: 'exec.ended', ...fields }, 'source program exited, restarting');
  }

  #reportRun({ how, isSuccess }: RunEnd): void {
    if (!isSuccess) {
      this.#fail(how);
      this.#trouble.report({ event: 'exec.failed', ...this.#named(), error: how }, 'source program failed');
      return;
    }
    this.#context.status.connect();
    this.#trouble.recovered('exec.failed', this.#named(), 'source program is succeeding again');
  }

  #reportMissed(runs: number): void {
    const { status } = this.#context;
    status.pollsLate += runs;
    const fields = { source: status.name, late: status.pollsLate };
    this.#trouble.report({ event: 'source.polls_late', ...fields }, 'polls delayed or skipped');
  }

  #fail(how: string): void {
    const { status, gate } = this.#context;
    status.errors++;
    status.disconnect(how);
    gate.record([...this.#points.values()].map((point) => ({ point, failure: undefined })));
  }

  #named() {
    const { name, spec } = this.#context.source;
    return { source: name, program: spec.command[0] };
  }
}

/** The points have no map, because drafts contain numbers that were already mapped. */
function bySeries(points: readonly Point<ExecValue>[]): ReadonlyMap<number, Point<ExecValue>> {
  return new Map(points.map((point) => [point.series, { ...point, map: undefined }]));
}

type Chunks = AsyncIterator<Buffer>;

/** Limits the time in which the reader waits for output. Time in which the reader is busy is not counted. */
function withSilenceLimit(chunks: Chunks, maxSilenceMs: number, clock: Clock, exceeded: (why: string) => void): Chunks {
  const time = maxSilenceMs < 1_000 ? `${maxSilenceMs} ms` : durationText(maxSilenceMs / 1_000);
  return {
    next() {
      const cancel = clock.after(maxSilenceMs, () => exceeded(`no output for ${time}`));
      return chunks.next().finally(cancel);
    },
    return: (value) => chunks.return!(value),
  };
}

/** Ends the output after `maxBytes`. */
function withSizeLimit(chunks: Chunks, maxBytes: number, exceeded: (why: string) => void): Chunks {
  let bytes = 0;
  return {
    async next() {
      const next = await chunks.next();
      if (next.done) return next;
      bytes += next.value.length;
      if (bytes <= maxBytes) return next;
      exceeded(`printed more than ${bytesText(maxBytes)}`);
      return { done: true, value: undefined };
    },
    return: (value) => chunks.return!(value),
  };
}
