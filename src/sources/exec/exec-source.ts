/**
 * A program whose standard output is in the push format. Its output is handled like a request with `partial`: valid
 * lines are accepted. Values configured for this source in tags.yaml are shaped by its gate; all others are stored
 * unchanged. While writes to the disk fail, the output is not read, so the program blocks on a full pipe.
 *
 * Without `every`, the program runs continuously. It is restarted when it exits or prints nothing for `timeout`. With
 * `every`, it is run at this interval and ended after `timeout`. The final line of a terminated program may be
 * incomplete, and is rejected unless it ends with a line feed.
 */
import { isUtf8 } from 'node:buffer';
import { existsSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { bytesText, durationText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { CollectedBytes } from '../../base/inbound/collected-bytes.ts';
import type { RunEnd } from '../../base/programs/program-run.ts';
import { ScheduledProgram } from '../../base/programs/scheduled.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import { STAMPED_HERE, STATUS_MASK, type ValueColumns } from '../../buffer/format/value-columns.ts';
import { readNdjsonBody } from '../formats/json-values.ts';
import { readLineProtocol, type SeriesHeads } from '../formats/line-protocol.ts';
import { ProgramOutputLog } from '../formats/program-output-log.ts';
import { quote } from '../intake/address-book.ts';
import type { Interceptor } from '../intake/draft.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import { MAX_LINE_BYTES } from '../intake/text-parsers.ts';
import { TroubleLog, USABLE_MS } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

export interface ExecSpec {
  /** Program and arguments. */
  command: readonly [string, ...string[]];
  /** Output format: NDJSON as in `POST /v1/values`, or line protocol with times in nanoseconds. */
  format: 'ndjson' | 'lines';
  /** Maximum duration of a run with `every`, otherwise maximum time without output; in milliseconds. */
  timeoutMs?: number;
  /** Time zone of timestamps without a UTC offset. */
  zone?: string;
}

/** Empty, because each output line specifies its value. */
export type ExecValue = Readonly<Record<never, never>>;

/** Minimum default for the duration of a run. */
const MIN_DEFAULT_TIMEOUT_MS = 60_000;
/** Maximum output of one run with `every`. */
const MAX_RUN_BYTES = 16_000_000;
const QUALITIES: readonly (Quality | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];
const NANOSECONDS = {
  msOfUnit: 1e-6,
  unitFix: () => 'print timestamps in nanoseconds',
  tagFrom: undefined,
  maxLineLength: MAX_LINE_BYTES,
};
const FEED = 10;
const NOT_JSON = 'is not JSON';
const LINES = '; for line protocol, set format: lines';

/** Libraries that `stdbuf -oL` preloads to make programs line-buffered. */
const LINE_BUFFERS = ['/usr/libexec/coreutils/libstdbuf.so', '/usr/lib/coreutils/libstdbuf.so'];

/**
 * Returns environment variables that disable block buffering, because buffered lines arrive late and together. These
 * are the variables that `stdbuf -oL` sets; `stdbuf` itself would hide why a program cannot be started.
 */
function unbufferedOutput(): Record<string, string> {
  const library = LINE_BUFFERS.find((path) => existsSync(path));
  const lines = library === undefined ? {} : { _STDBUF_O: 'L', LD_PRELOAD: library };
  return { PYTHONUNBUFFERED: '1', ...lines };
}

/** Minimum number of repeated values without a timestamp in one read that indicates buffered output. */
const MANY_REPEATED = 50;

/** Output of one run, which may still be read when the next run has started. */
interface Output {
  /** Series by the beginning of their lines. */
  heads: SeriesHeads;
  /** Bytes after the latest line feed. */
  rest: CollectedBytes;
  /** Whether the output was read to its end. */
  isAtEnd: boolean;
}

export class ExecSource implements RunningSource {
  #context: SourceContext<ExecSpec, ExecValue>;
  #points: ReadonlyMap<number, Point<ExecValue>>;
  readonly #program: SupervisedProgram | ScheduledProgram;
  readonly #trouble: TroubleLog;
  /** Output of the latest run. */
  #output: Output | undefined;
  #isBufferReported = false;

  constructor(context: SourceContext<ExecSpec, ExecValue>) {
    const { source, clock, log, instance, status } = context;
    this.#context = context;
    this.#points = bySeries(context.points);
    this.#trouble = new TroubleLog(log, clock);
    const outputLog = new ProgramOutputLog(source.name, log, clock);
    const { command, timeoutMs } = source.spec;
    const { everyMs } = source;
    const options = {
      command,
      instance: `${instance}-${source.name}`,
      clock,
      readOutput: (stream: Readable) => this.#readOutput(stream),
      onErrorLine: (line: string) => outputLog.write(line),
      variables: unbufferedOutput(),
      // A wrapper may start the actual program in the background.
      continuesInChild: true,
    };
    this.#program =
      everyMs > 0
        ? new ScheduledProgram({
            ...options,
            everyMs,
            timeoutMs: timeoutMs ?? Math.max(everyMs, MIN_DEFAULT_TIMEOUT_MS),
            isReady: () => !this.#context.gate.isFull,
            ended: (end) => this.#end(end),
            missed: (runs) => this.#reportMissed(runs),
          })
        : new SupervisedProgram({
            ...options,
            started: () => status.connect(),
            ended: (how, againInMs, hasExited) => this.#end({ how, isSuccess: false, hasExited }, againInMs),
          });
  }

  start(): void {
    this.#program.start();
  }

  async stop(): Promise<void> {
    await this.#program.stop();
    this.#endOutput(false);
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

  /**
   * Reads whole lines. While too many values wait for the disk, the output is not read, so the program blocks on a full
   * pipe. Limits the output of a run with `every`, and otherwise the time without output.
   */
  async #readOutput(stream: Readable): Promise<void> {
    const { clock, gate, source } = this.#context;
    const { timeoutMs } = source.spec;
    const program = this.#program;
    const output: Output = { heads: new WeakMap(), rest: new CollectedBytes(), isAtEnd: false };
    this.#output = output;
    const watch = () => {
      if (program instanceof ScheduledProgram || timeoutMs === undefined) return () => {};
      const time = timeoutMs < 1_000 ? `${timeoutMs} ms` : durationText(timeoutMs / 1_000);
      return clock.after(timeoutMs, () => program.restart(`no output for ${time}`));
    };
    const { rest } = output;
    let bytes = 0;
    let isSkipping = false;
    let endWatch = watch();
    try {
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        endWatch();
        bytes += chunk.length;
        if (program instanceof ScheduledProgram && bytes > MAX_RUN_BYTES) {
          program.endRun(`printed more than ${bytesText(MAX_RUN_BYTES)}`);
          return;
        }
        await gate.untilRoom();
        const end = chunk.lastIndexOf(FEED) + 1;
        if (end > 0) {
          const lines = chunk.subarray(isSkipping ? chunk.indexOf(FEED) + 1 : 0, end);
          this.#store(rest.length === 0 ? lines : Buffer.concat([rest.takeAll(), lines]), output.heads);
          isSkipping = false;
        }
        if (!isSkipping && rest.length + chunk.length - end > MAX_LINE_BYTES) {
          rest.release();
          isSkipping = true;
          this.#reject(1, `the line is longer than ${MAX_LINE_BYTES} bytes`);
        }
        // Copied, because a slice would retain the whole chunk in memory.
        if (!isSkipping) rest.add(Buffer.from(chunk.subarray(end)));
        endWatch = watch();
      }
      output.isAtEnd = true;
    } finally {
      endWatch();
    }
  }

  /** Accepts a final line without a line feed only if the program exited by itself. Other lines may be truncated. */
  #endOutput(hasExited: boolean): void {
    const output = this.#output;
    if (output === undefined || output.rest.length === 0) return;
    const line = output.rest.takeAll();
    if (hasExited && output.isAtEnd) this.#store(line, output.heads);
    else this.#reject(1, `the output ends within the line ${quote(line.toString('utf8'))}`);
  }

  /** Stores the values of lines. Invalid UTF-8 is replaced, so that only its line is rejected. */
  #store(lines: Buffer, heads: SeriesHeads): void {
    const { gate, source, intake } = this.#context;
    const points = this.#points;
    const readings: Reading[] = [];
    const interceptor: Interceptor = {
      has: (series) => points.has(series),
      accept(series, value, timeMs, flags) {
        const point = points.get(series)!;
        if (typeof value === 'object') readings.push({ point, ...value, timeMs });
        else readings.push({ point, raw: value, timeMs, quality: QUALITIES[flags & STATUS_MASK] });
      },
    };
    const draft = intake.draft({
      isPartial: true,
      interceptor,
      textBytes: lines.length,
      live: { zone: source.spec.zone, gate },
    });
    const text = isUtf8(lines) ? lines : Buffer.from(lines.toString('utf8'));
    if (source.spec.format === 'ndjson') readNdjsonBody(text, draft);
    else readLineProtocol(text, { ...NANOSECONDS, heads }, draft);
    const columns = draft.finish();
    this.#reportBuffer(readings, columns);
    gate.record(readings);
    gate.writeColumns(columns).catch(() => {});
    const { count, listed } = draft.problems;
    const [first] = listed;
    if (first) this.#reject(count, `${first.problem}${first.problem.endsWith(NOT_JSON) ? LINES : ''}`, first.field);
    else if (draft.count > 0) {
      const message = 'all values from a program are valid again';
      this.#trouble.recovered('exec.refused', { source: source.name }, message, '', USABLE_MS);
    }
  }

  /** Counts and reports rejected values. `problem`: the first problem. */
  #reject(count: number, problem: string, field = ''): void {
    const { source, status } = this.#context;
    status.errors += count;
    status.reject(plain(field === '' ? problem : `${field}: ${problem}`), count);
    const fields = { source: source.name, refused: count, field, error: plain(problem) };
    this.#trouble.report({ event: 'exec.refused', ...fields }, 'some values from a program were rejected');
  }

  /** Warns once if many values of a series arrive together without timestamps, which indicates buffered output. */
  #reportBuffer(readings: readonly Reading[], { length, series, flags }: ValueColumns): void {
    if (this.#isBufferReported || readings.length + length < MANY_REPEATED) return;
    const untimed: number[] = [];
    for (const one of readings) if ('raw' in one && one.timeMs === undefined) untimed.push(one.point.series);
    for (let at = 0; at < length; at++) if ((flags[at]! & STAMPED_HERE) !== 0) untimed.push(series[at]!);
    if (untimed.length - new Set(untimed).size < MANY_REPEATED) return;
    this.#isBufferReported = true;
    const fields = { event: 'exec.buffered', source: this.#context.source.name, values: untimed.length };
    this.#context.log.warn(fields, 'source program printed many values without timestamps at once');
  }

  /** Reports how a program ended. `againInMs`: delay before its restart if it has no `every`. */
  #end({ how, isSuccess, hasExited }: RunEnd, againInMs?: number): void {
    this.#endOutput(hasExited);
    const { status, gate, source, log } = this.#context;
    const fields = { source: source.name, program: source.spec.command[0] };
    if (isSuccess) {
      status.connect();
      this.#trouble.recovered('exec.failed', fields, 'source program restored');
      return;
    }
    status.errors++;
    status.disconnect(how, 'Read the error output of the program (exec.said) with `tagferry logs`.');
    gate.record([...this.#points.values()].map((point) => ({ point, failure: undefined })));
    if (againInMs === undefined) {
      this.#trouble.report({ event: 'exec.failed', ...fields, error: how }, 'source program failed');
    } else {
      const ended = { ...fields, error: how, again_in_ms: againInMs };
      log.warn({ event: 'exec.ended', ...ended }, 'source program exited, restarting');
    }
  }

  #reportMissed(runs: number): void {
    const { status } = this.#context;
    status.pollsLate += runs;
    const fields = { source: status.name, late: status.pollsLate };
    this.#trouble.report({ event: 'source.polls_late', ...fields }, 'polls delayed or skipped');
  }
}

function bySeries(points: readonly Point<ExecValue>[]): ReadonlyMap<number, Point<ExecValue>> {
  return new Map(points.map((point) => [point.series, point]));
}
