/**
 * The only path by which the agent writes to devices: `write` actions and `tagferry write`. Each write passes the same
 * guards, in this order: WRITES, writable value, type, range, latest order, rate, age.
 *
 *   request ──► checks ──► read previous value ──► note on disk ──► send ──► read back ──► result
 *                              └── one write per value at a time ──┘
 *
 * Invariants: Nothing outside `writable` is sent. Values are absolute, so that a repeated write is harmless. A request
 * is never sent after a request with a higher `WriteOrder`. Immediately before each attempt to send, the age and the
 * current configuration are checked, so that a reload also applies to a write in progress. If nothing was sent, the
 * history is restored, so that the write supersedes nothing. A crash leaves the note, from which the next process
 * continues the order and the rate; the caller repeats the write or reports it as too old.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import type { WritingRules } from '../../config/source-kinds.ts';
import type { Writable } from '../../config/tags.ts';
import { rawOf } from '../../config/writable.ts';
import { scaledOf } from '../intake/shaping.ts';
import type { Point } from '../points.ts';
import type { RunningSource } from '../source-kind.ts';
import type { SourceStatus } from '../status.ts';

/** A value of tags.yaml, as an operator or a reaction names it. */
export interface NamedValue {
  tag: string;
  key: string;
  group?: string | undefined;
}

/**
 * Order of writes to one value. Later events take precedence over earlier ones, and later reactions and actions of one
 * event over earlier ones.
 */
type WriteOrder = readonly [event: number, reaction: number, action: number];

/** A writable value and its running source. */
export interface WriteTarget {
  value: NamedValue;
  /** Display name, for example `VALVE-1 setpoint`. */
  name: string;
  writable: Writable;
  rules: WritingRules;
  /** Registers, node, metric or topic that the write changes, as returned by `WritingRules.targetsOf`. */
  targets: readonly string[];
  point: Point;
  source: RunningSource;
  status: Pick<SourceStatus, 'latestOf' | 'listen'>;
}

export interface WriteRequest extends NamedValue {
  value: number;
  /** Who causes the write, for log and journal. */
  by: string;
  order: WriteOrder;
  /** Returns why the request is too old to be sent, if so. */
  reasonAgainst(): string | undefined;
  signal: AbortSignal;
}

export interface WriteResult {
  /**
   * `rejected`: a guard prevented the write, and a retry would be rejected as well. `unverified`: sent, but the device
   * returns another value.
   */
  outcome: 'written' | 'failed' | 'rejected' | 'unverified' | 'interrupted';
  /** Values and reason, for the journal. */
  detail: string;
}

/** A checked request: the number to send, and the resulting value. */
export interface WritePlan {
  target: WriteTarget;
  raw: number;
  /** Value after rounding to the type of the device. */
  value: number;
}

export interface WriterOptions {
  /** WRITES. */
  isOn(): boolean;
  /** Returns the target of a write. Throws `WriteRejected`. */
  find(value: NamedValue): WriteTarget;
  notes: { read(name: string): Promise<string | undefined>; set(name: string, text: string): Promise<void> };
  onOutcome(outcome: Exclude<WriteResult['outcome'], 'interrupted'>): void;
  clock: Clock;
  log: Logger;
}

/** A guard prevented the write. */
export class WriteRejected extends TagferryError {
  constructor(message: string, hint?: string) {
    super(message, { code: 'write.rejected', retryable: false, hint });
  }
}

/** Latest writes of one value. Its note contains the same members without times. */
interface History {
  order: WriteOrder;
  by: string;
  atMs: number;
  /** Values that were replaced within the period of `max_rate`. */
  replaced: { value: number; atMs: number }[];
}

/** Values of one write, for log and journal. */
interface Values {
  requested: number;
  previous?: number | undefined;
  readBack?: number | undefined;
}

/** Two causes of writes within this time are reported as a conflict. */
const CONFLICT_MS = 1_000;
/** Pauses before a value is read back, because devices may apply a write with a delay. */
const READ_BACK_MS = [0, 100, 300, 600];
/** The same for a value that the device reports as a message. */
const REPORTED_MS = [50, 150, 300, 500, 1_000, 1_500, 1_500];
const MAX_REPLACED = 1_000;
/** Tolerance for rounding errors: 0.1 + 0.2 must not exceed 0.3. */
const ROUNDING = 1e-9;
/** Relative difference that a device causes by storing a value as a 32-bit float. */
const SINGLE_PRECISION = 2 ** -23;

export class Writer {
  readonly #options: WriterOptions;
  readonly #repeats = new Repeats();
  readonly #histories = new Map<string, History>();
  /** Latest write of each value, which the next one follows. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /** Applies the guards that depend only on the configuration and the value. Throws `WriteRejected`. */
  plan({ value, ...named }: NamedValue & { value: number }): WritePlan {
    const { isOn, find } = this.#options;
    if (!isOn()) throw new WriteRejected('WRITES is off', 'Set WRITES=on in agent.env and reload the configuration.');
    const target = find(named);
    const { writable, rules, point } = target;
    if (!Number.isFinite(value)) throw new WriteRejected('the value is not a number');
    const { min, max } = writable;
    if (value < min || value > max) throw new WriteRejected(`${value} is not within ${min} to ${max}`);
    const raw = rawOf(value, point.shaping);
    const stored = rules.storedFor(point.spec, raw);
    if (stored === undefined) throw new WriteRejected(`${value} does not fit the type of ${target.name}`);
    const rounded = scaledOf(stored, point.shaping);
    if (rounded < min || rounded > max) {
      throw new WriteRejected(`the device would store ${value} as ${rounded}, which is not within ${min} to ${max}`);
    }
    return { target, raw, value: rounded };
  }

  /** Returns the current value of a target. If the target cannot be queried, returns the latest reported value. */
  async current({ source, point, status }: WriteTarget, signal: AbortSignal): Promise<number | undefined> {
    if (source.readOne === undefined) return status.latestOf(point.series);
    return scaledOf(await source.readOne(point, signal), point.shaping);
  }

  /** Writes a value after the earlier writes of the same value. Never throws. */
  async write(request: WriteRequest): Promise<WriteResult> {
    const { onOutcome, clock, log } = this.#options;
    const { tag, key, by, signal } = request;
    const values: Values = { requested: request.value };
    try {
      const plan = this.plan(request);
      // Values in different groups can have the same name.
      const id = JSON.stringify([tag, plan.target.value.group ?? '', plan.target.value.key]);
      const turn = (this.#turns.get(id) ?? Promise.resolve()).then(() => this.#writeInTurn(id, request, plan, values));
      this.#turns.set(
        id,
        turn.catch(() => {}),
      );
      await turn;
    } catch (error) {
      const reason = messageOf(error);
      const detail = `${reason}; ${textOf(values)}`;
      if (signal.aborted) return { outcome: 'interrupted', detail };
      const outcome = outcomeOf(error);
      onOutcome(outcome);
      const count = this.#repeats.note(`${tag} ${key} ${by} ${reason}`, clock.monotonicMs());
      const level = count === undefined ? 'debug' : 'warn';
      const fields = { tag, key, by, ...values, error: reason, count };
      if (outcome === 'rejected')
        log[level]({ event: 'write.rejected', ...fields }, 'write rejected, nothing was written');
      else log[level]({ event: 'write.failed', ...fields }, 'failed to write a value');
      return { outcome, detail };
    }
    onOutcome('written');
    this.#repeats.end(`${tag} ${key} `);
    log.info({ event: 'write.done', tag, key, by, ...values }, 'value written');
    return { outcome: 'written', detail: textOf(values) };
  }

  async #writeInTurn(id: string, request: WriteRequest, plan: WritePlan, values: Values): Promise<void> {
    const { signal, order, by } = request;
    const { target, raw, value } = plan;
    const history = await this.#historyOf(id);
    this.#checkOrder(request, history);
    values.requested = value;
    values.previous = await this.current(target, signal);
    const replaced = this.#checkRate(target, history, values.previous, value);
    await this.#record(id, { order, by, atMs: this.#options.clock.monotonicMs(), replaced });
    let isSent = false;
    const guard = () => {
      signal.throwIfAborted();
      const reason = request.reasonAgainst();
      if (reason !== undefined) throw new WriteRejected(reason);
      const current = this.plan(request);
      this.#checkRate(current.target, history, values.previous, current.value);
      const isSame =
        current.raw === raw &&
        isDeepStrictEqual(current.target.targets, target.targets) &&
        isDeepStrictEqual(current.target.point.spec, target.point.spec);
      if (!isSame) throw failure('the value was reconfigured before the request was sent');
      isSent = true;
    };
    let reported: number | undefined;
    const stopListening = target.status.listen(({ point, value: heard }) => {
      if (point.series === target.point.series) reported = heard ?? reported;
    });
    try {
      await target.source.write!(target.point, raw, guard, signal);
      if (!target.writable.verify) return;
      const isReported = target.source.readOne === undefined;
      const margin = target.writable.tolerance + Math.abs(value) * SINGLE_PRECISION;
      for (const pauseMs of isReported ? REPORTED_MS : READ_BACK_MS) {
        if (pauseMs > 0) await this.#options.clock.sleep(pauseMs, signal);
        values.readBack = isReported ? reported : await this.#readBack(target, signal);
        if (values.readBack !== undefined && Math.abs(values.readBack - value) <= margin) return;
      }
      if (values.readBack === undefined) throw failure('sent, but the device did not report the value');
      throw new TagferryError(`the device returns ${values.readBack} instead of ${value}`, { code: UNVERIFIED });
    } finally {
      stopListening();
      if (!isSent) await this.#record(id, history);
    }
  }

  async #readBack(target: WriteTarget, signal: AbortSignal): Promise<number | undefined> {
    try {
      return await this.current(target, signal);
    } catch (error) {
      throw failure(`sent, but not verified: ${messageOf(error)}`, error);
    }
  }

  /** Rejects a request that is superseded by the latest write. Reports writes in quick succession. */
  #checkOrder({ tag, key, by, order }: WriteRequest, { order: latest, by: other, atMs }: History): void {
    const { clock, log } = this.#options;
    const at = order.findIndex((part, index) => part !== latest[index]);
    const isSuperseded = at !== -1 && order[at]! < latest[at]!;
    if (other !== by && clock.monotonicMs() - atMs < CONFLICT_MS) {
      const causes = isSuperseded ? { by: other, overrules: by } : { by, overrules: other };
      const fields = { event: 'write.conflict', tag, key, ...causes };
      log.warn(fields, 'two writes to one value within a second, the later one takes precedence');
    }
    if (isSuperseded) throw new WriteRejected(`superseded by a later write (${other})`);
  }

  /** Returns the replaced values within the period. Rejects a value that differs too much from one of them. */
  #checkRate(
    { writable: { maxRate } }: WriteTarget,
    { replaced }: History,
    previous: number | undefined,
    value: number,
  ): History['replaced'] {
    if (maxRate === undefined) return [];
    if (previous === undefined) throw new WriteRejected('the current value is unknown, so max_rate cannot be checked');
    const nowMs = this.#options.clock.monotonicMs();
    const recent = replaced.filter(({ atMs }) => nowMs - atMs < maxRate.perMs);
    const before = [...recent, { value: previous, atMs: nowMs }];
    const far = before.find((one) => Math.abs(value - one.value) > maxRate.change * (1 + ROUNDING));
    const limit = `max_rate allows a change of ${maxRate.change} in ${maxRate.perMs / 1_000} s`;
    if (far !== undefined) throw new WriteRejected(`${value} differs too much from ${far.value}: ${limit}`);
    if (before.length > MAX_REPLACED) throw new WriteRejected('too many writes within the period of max_rate');
    return before;
  }

  /** After a restart, replaced values count as replaced now, because the time without power is unknown. */
  async #historyOf(id: string): Promise<History> {
    const { clock, notes } = this.#options;
    const known = this.#histories.get(id);
    if (known !== undefined) return known;
    const note = await notes.read(`write/${id}`);
    const { order, by, replaced } = note === undefined ? NO_HISTORY : JSON.parse(note);
    const atMs = clock.monotonicMs();
    const stamped = replaced.map((value: number) => ({ value, atMs }));
    const history: History = { order, by, atMs: Number.NEGATIVE_INFINITY, replaced: stamped };
    this.#histories.set(id, history);
    return history;
  }

  async #record(id: string, history: History): Promise<void> {
    const { order, by, replaced } = history;
    await this.#options.notes.set(
      `write/${id}`,
      JSON.stringify({ order, by, replaced: replaced.map((one) => one.value) }),
    );
    this.#histories.set(id, history);
  }
}

const NO_HISTORY = { order: [0, 0, 0] as const, by: '', replaced: [] };
const UNVERIFIED = 'write.unverified';

function failure(message: string, cause?: unknown): TagferryError {
  return new TagferryError(message, { code: 'write.failed', retryable: true, cause });
}

function outcomeOf(error: unknown): 'failed' | 'rejected' | 'unverified' {
  if (error instanceof WriteRejected) return 'rejected';
  return codeOf(error) === UNVERIFIED ? 'unverified' : 'failed';
}

function textOf({ previous, requested, readBack }: Values): string {
  const shown = (value: number | undefined) => (value === undefined ? 'unknown' : String(value));
  return `previous ${shown(previous)}, requested ${shown(requested)}, read back ${shown(readBack)}`;
}
