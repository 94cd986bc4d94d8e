/**
 * A program whose standard output is the push format. What it prints is taken as a request of a pusher with `partial` is: line by
 * line, what is right. Values that tags.yaml reads from this source are shaped by its gate on the way, all others are stored as
 * they are printed. While the disk takes nothing, nothing is read: the program waits at its full pipe.
 */
import { isUtf8 } from 'node:buffer';
import type { Readable } from 'node:stream';
import { StoreError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { MemoryBudget } from '../../base/inbound/memory-budget.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import { STATUS_MASK, type ValueColumns } from '../../buffer/format/value-columns.ts';
import type { Aside, Draft } from '../draft.ts';
import type { Quality } from '../gate.ts';
import type { Point } from '../points.ts';
import { readNdjsonBody } from '../push/json-values.ts';
import { readLineProtocol } from '../push/line-values.ts';
import { ValueStream } from '../push/value-stream.ts';
import type { RunningSource, SourceContext, SourceState } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import type { ExecSpec, ExecValue } from './exec-spec.ts';
import { SaidLines } from './said-lines.ts';

/** Printed values that are not on disk yet. The values of one line of 1 MiB (5.5 MB) fit the three quarters for large bodies. */
const MAX_BYTES = 10 * 1024 * 1024;
const QUALITIES: readonly (Quality | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];
const NANOSECONDS = { msOfUnit: 1e-6, isUnitGuessed: true, tagFrom: undefined };

export class ExecSource implements RunningSource {
  #context: SourceContext<ExecSpec, ExecValue>;
  #points: ReadonlyMap<number, Point<ExecValue>>;
  readonly #program: SupervisedProgram;
  readonly #trouble: TroubleLog;
  readonly #said: SaidLines;
  /** Nothing is read any more, whatever the program still prints. */
  readonly #giveUp = new AbortController();
  /** What each draft was read from, until it is on disk. */
  readonly #lines = new WeakMap<Draft, Buffer>();
  #changedMs: number;
  #problem: string | undefined;
  #errors = 0;

  constructor(context: SourceContext<ExecSpec, ExecValue>) {
    const { source, clock, log, instance } = context;
    this.#context = context;
    this.#points = bySeries(context.points);
    this.#trouble = new TroubleLog(log, clock);
    this.#said = new SaidLines(source.name, log, clock);
    this.#changedMs = clock.monotonicMs();
    this.#program = new SupervisedProgram({
      command: source.spec.command,
      instance: `${instance}-${source.name}`,
      clock,
      take: (output) => this.#take(output),
      said: (line) => this.#said.tell(line),
      ended: (how, againInMs) => this.#sayEnd(how, againInMs),
    });
  }

  start(): void {
    this.#program.start();
  }

  async stop(): Promise<void> {
    await this.#program.stop();
    this.#giveUp.abort();
  }

  /** Other values of the same program: it runs on. */
  async follow(context: SourceContext<never, never>): Promise<boolean> {
    const next = context as SourceContext as SourceContext<ExecSpec, ExecValue>;
    const { source } = this.#context;
    if (JSON.stringify(source.spec) !== JSON.stringify(next.source.spec)) return false;
    this.#context = next;
    this.#points = bySeries(next.points);
    return true;
  }

  state(): SourceState {
    const { startedMs, ends } = this.#program;
    return {
      connected: startedMs !== undefined,
      sinceMs: startedMs ?? this.#changedMs,
      ...(this.#problem === undefined || startedMs !== undefined ? {} : { problem: this.#problem }),
      errors: this.#errors + ends,
      pollsLate: 0,
    };
  }

  async #take(output: Readable): Promise<void> {
    const { intake } = this.#context;
    const stream = new ValueStream({
      draft: () => intake.draft({ isPartial: true }),
      read: (bytes, draft) => this.#read(bytes, draft),
      submit: (draft) => this.#submit(draft),
      memory: new MemoryBudget({ maxBytes: MAX_BYTES, bodies: 1 }).reserve(),
      signal: this.#giveUp.signal,
    });
    const { source } = this.#context;
    try {
      await stream.read(output[Symbol.asyncIterator]() as AsyncIterator<Buffer>);
    } finally {
      this.#trouble.over('exec.refused', { source: source.name }, 'a program prints what can be taken again');
    }
  }

  /** Bytes that are no UTF-8 cost the line that they stand in. */
  #read(bytes: Buffer, draft: Draft): void {
    this.#lines.set(draft, bytes);
    const sound = isUtf8(bytes) ? bytes : Buffer.from(bytes.toString('utf8'));
    if (this.#context.source.spec.format === 'ndjson') readNdjsonBody(sound, draft);
    else readLineProtocol(sound, NANOSECONDS, draft);
  }

  async #submit(draft: Draft): Promise<number> {
    const { gate, source } = this.#context;
    const points = this.#points;
    const aside: Aside = {
      has: (series) => points.has(series),
      take: (series, value, timeMs, status) =>
        gate.take(points.get(series)!, value, timeMs, QUALITIES[status & STATUS_MASK]),
    };
    const columns = this.#finish(draft, aside);
    gate.add(columns);
    const { count, listed } = draft.problems;
    this.#errors += count;
    if (count > 0) {
      const { field = '', problem = '' } = listed[0] ?? {};
      gate.arrivals.reject(plain(field === '' ? problem : `${field}: ${problem}`), count);
      const fields = { source: source.name, refused: count, field, error: plain(problem) };
      this.#trouble.again({ event: 'exec.refused', ...fields }, 'some of what a program prints cannot be taken');
    }
    await gate.committed();
    return draft.taken;
  }

  /** A series may have been forgotten since the lines were read: nobody prints them again, so they are read again. */
  #finish(draft: Draft, aside: Aside): ValueColumns {
    try {
      return draft.finish(aside);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      const again = this.#context.intake.draft({ isPartial: true });
      this.#read(this.#lines.get(draft)!, again);
      return again.finish(aside);
    }
  }

  #sayEnd(how: string, againInMs: number): void {
    const { source, clock, log } = this.#context;
    this.#problem = how;
    this.#changedMs = clock.monotonicMs();
    const fields = { source: source.name, program: source.spec.command[0], error: how, again_in_ms: againInMs };
    log.warn({ event: 'exec.ended', ...fields }, 'the program of a source has ended and is started again');
  }
}

function bySeries(points: readonly Point<ExecValue>[]): ReadonlyMap<number, Point<ExecValue>> {
  return new Map(points.map((point) => [point.series, point]));
}
