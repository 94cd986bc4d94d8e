/**
 * Evaluates rules for the values that the gateway accepts (reactions.yaml, `on: value`). Inputs call `observe` for each
 * value in order of acceptance, and confirm the value only after the returned promise has resolved.
 *
 *   observe ──► rule-state ──transition──► store (event and state of the rule, in one transaction) ──► reactions
 *                   ▲
 *   timers ─────────┘  `for`, `silent`
 *
 * Invariants: A transition is on disk before its first action starts, and before the value that caused it is
 * acknowledged. A restart therefore repeats no transition and misses none. If a transition cannot be stored, storing is
 * retried, and only values of the same series wait. After a crash, pending `for` times and `silent` periods start
 * again.
 */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import type { Reaction, ValueRule } from '../../config/reactions.ts';
import type { Tag, Tags, TagValue } from '../../config/tags.ts';
import type { ValueStatus } from '../../contract/values.ts';
import {
  applySample,
  applyTime,
  dueAtMs,
  type RuleState,
  type Sample,
  type Step,
  type Transition,
} from './rule-state.ts';

/** State of a rule as stored on disk. */
export interface StoredRule {
  /** Digest of the condition, used to detect a changed rule and reset its state. */
  condition: string;
  isRaised: boolean;
  /** Number of the latest transition. */
  serial: number;
  /** Value at the latest transition, with which `changes` compares the next value. */
  sample?: Sample | undefined;
}

/** Event created by a rule, in the format of platform events. */
export interface ValueEvent {
  eventType: 'value_raised' | 'value_cleared';
  occurredAtMs: number;
  /** JSON text. */
  payload: string;
}

/** Persistent store for rule states and rule events. */
export interface RuleStore {
  read(rule: string): Promise<StoredRule | undefined>;
  /** Stores an event and the state of its rule in one transaction, and starts the event's reactions. */
  add(event: ValueEvent, rule: string, state: StoredRule): Promise<void>;
}

export interface ValueRulesOptions {
  store: RuleStore;
  clock: Clock;
  log: Logger;
}

/** A rule and the series that it uses. */
export interface PlacedRule {
  rule: ValueRule;
  series: number;
}

/** State of a rule, for display. */
export interface RuleReport {
  name: string;
  tag: string;
  key: string;
  state: 'cleared' | 'pending' | 'raised';
  /** Time since the latest value, in milliseconds. */
  sampledAgoMs: number;
  value: number | undefined;
  transitions: number;
}

interface Running {
  readonly rule: ValueRule;
  readonly condition: string;
  state: RuleState;
  serial: number;
  /** Resolves when the latest transition is on disk; undefined if all transitions are on disk. */
  pending: Promise<void> | undefined;
  cancelTimer: (() => void) | undefined;
}

const RETRY_MS = 1_000;

export class ValueRules {
  readonly #options: ValueRulesOptions;
  readonly #repeats = new Repeats();
  #bySeries = new Map<number, Running[]>();
  /** Contains 1 for each series that a rule uses. It is an array because it is accessed for every accepted value. */
  #used = new Uint8Array();
  /** Transitions that are not on disk yet, in order. */
  readonly #queue: { event: ValueEvent; rule: string; state: StoredRule; stored(): void }[] = [];
  #writing: Promise<void> | undefined;
  #retry: (() => void) | undefined;
  #isStopped = false;

  constructor(options: ValueRulesOptions) {
    this.#options = options;
  }

  get isIdle(): boolean {
    return this.#bySeries.size === 0;
  }

  /** Applies the rules of a new configuration. Unchanged rules keep their state. */
  async replace(placed: readonly PlacedRule[]): Promise<void> {
    const { store, clock } = this.#options;
    const before = new Map([...this.#running()].map((running) => [running.rule.name, running]));
    const rules: [number, Running][] = [];
    for (const { rule, series } of placed) {
      const condition = digestOf(rule);
      const running = before.get(rule.name);
      if (running?.condition === condition) {
        before.delete(rule.name);
        rules.push([series, running]);
        continue;
      }
      const stored = await store.read(rule.name);
      const known = stored?.condition === condition ? stored : undefined;
      const serial = Math.max(stored?.serial ?? 0, running?.serial ?? 0);
      const sample = rule.condition.kind === 'changes' ? known?.sample : undefined;
      const state: RuleState = { isRaised: known?.isRaised ?? false, sampledAtMs: clock.monotonicMs(), sample };
      rules.push([series, { rule, condition, state, serial, pending: undefined, cancelTimer: undefined }]);
    }
    for (const { cancelTimer } of before.values()) cancelTimer?.();
    this.#bySeries = new Map(
      [...Map.groupBy(rules, ([series]) => series)].map(([id, all]) => [id, all.map(([, one]) => one)]),
    );
    this.#used = new Uint8Array(Math.max(0, ...this.#bySeries.keys()) + 1);
    for (const series of this.#bySeries.keys()) this.#used[series] = 1;
    for (const [, running] of rules) this.#schedule(running);
  }

  /** Returns whether a rule uses the series. */
  uses(series: number): boolean {
    return this.#used[series] === 1;
  }

  /**
   * Applies an accepted value. `timestampMs` is the time of the value. Returns a promise that resolves when all
   * transitions of the series are on disk, or undefined if they already are.
   */
  observe(
    series: number,
    value: number,
    timestampMs: number,
    status: ValueStatus | undefined,
  ): Promise<void> | undefined {
    const nowMs = this.#options.clock.monotonicMs();
    const pending: Promise<void>[] = [];
    for (const running of this.#bySeries.get(series) ?? []) {
      this.#apply(running, applySample(running.rule, running.state, { value, timestampMs, status }, nowMs));
      if (running.pending) pending.push(running.pending);
    }
    return pending.length > 1 ? Promise.all(pending).then(() => {}) : pending[0];
  }

  reports(): RuleReport[] {
    const nowMs = this.#options.clock.monotonicMs();
    return [...this.#running()].map(({ rule, state, serial }) => ({
      name: rule.name,
      tag: rule.tag,
      key: rule.key,
      state: state.isRaised ? 'raised' : state.pendingSinceMs === undefined ? 'cleared' : 'pending',
      sampledAgoMs: nowMs - state.sampledAtMs,
      value: state.sample?.value,
      transitions: serial,
    }));
  }

  /**
   * Returns the transition that a value would cause now, and its delay according to `for`. Does not change any state.
   */
  preview(
    name: string,
    value: number,
    status: ValueStatus | undefined,
  ): { transition: Transition | undefined; afterMs: number } {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const running = [...this.#running()].find(({ rule }) => rule.name === name);
    if (running === undefined) return { transition: undefined, afterMs: 0 };
    const { rule, state } = running;
    const step = applySample(rule, state, { value, timestampMs: clock.wallMs(), status }, nowMs);
    if (step.transition !== undefined || step.state.pendingSinceMs === undefined) {
      return { transition: step.transition, afterMs: 0 };
    }
    return { transition: 'raised', afterMs: step.state.pendingSinceMs + rule.forMs - nowMs };
  }

  /** Cancels all timers and waits for a write in progress. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#retry?.();
    for (const { cancelTimer } of this.#running()) cancelTimer?.();
    await this.#writing;
  }

  *#running(): Iterable<Running> {
    for (const rules of this.#bySeries.values()) yield* rules;
  }

  #apply(running: Running, { state, transition }: Step): void {
    running.state = state;
    if (transition !== undefined) this.#add(running, transition === 'raised' ? 'value_raised' : 'value_cleared');
    this.#schedule(running);
  }

  /** If values have arrived in the meantime, the timer may fire early and is then set again. */
  #schedule(running: Running): void {
    const { clock } = this.#options;
    if (running.cancelTimer !== undefined || this.#isStopped) return;
    const dueMs = dueAtMs(running.rule, running.state);
    if (dueMs === undefined) return;
    running.cancelTimer = clock.after(dueMs - clock.monotonicMs(), () => {
      running.cancelTimer = undefined;
      this.#apply(running, applyTime(running.rule, running.state, clock.monotonicMs()));
    });
  }

  #add(running: Running, eventType: ValueEvent['eventType']): void {
    const { rule, condition, state } = running;
    const occurredAtMs = this.#options.clock.wallMs();
    running.serial++;
    const { promise, resolve } = Promise.withResolvers<void>();
    running.pending = promise;
    this.#queue.push({
      stored: () => {
        if (running.pending === promise) running.pending = undefined;
        resolve();
      },
      event: { eventType, occurredAtMs, payload: payloadOf(rule, eventType, occurredAtMs, state.sample) },
      rule: rule.name,
      state: { condition, isRaised: state.isRaised, serial: running.serial, sample: state.sample },
    });
    this.#startWriting();
  }

  #startWriting(): void {
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
    });
  }

  /** Writes the queue. Also returns after a failure; the remaining transitions are then written after a pause. */
  async #write(): Promise<void> {
    const { store, clock, log } = this.#options;
    for (let next = this.#queue[0]; next !== undefined; next = this.#queue[0]) {
      try {
        await store.add(next.event, next.rule, next.state);
      } catch (error) {
        const count = this.#repeats.note('rule', clock.monotonicMs());
        const fields = {
          event: 'rule.not_stored',
          rule: next.rule,
          code: codeOf(error),
          error: messageOf(error),
          count,
        };
        log[count === undefined ? 'debug' : 'warn'](fields, 'failed to store a transition, retrying');
        this.#retry ??= clock.after(RETRY_MS, () => {
          this.#retry = undefined;
          this.#startWriting();
        });
        return;
      }
      this.#queue.shift();
      next.stored();
      if (next.event.eventType === 'value_raised')
        log.info({ event: 'rule.raised', rule: next.rule }, 'rule triggered');
      else log.info({ event: 'rule.cleared', rule: next.rule }, 'rule cleared');
    }
    this.#repeats.end('rule');
  }
}

/** Returns the value rules of the reactions with the series that they use. `seriesOf` returns a series number. */
export function placeRules(
  { reactions, tags: { tags } }: { reactions: readonly Reaction[]; tags: Pick<Tags, 'tags'> },
  seriesOf: (tag: Tag, value: TagValue) => number,
): PlacedRule[] {
  return reactions.flatMap(({ rule }) => {
    if (rule === undefined) return [];
    const tag = tags.get(rule.tag)!;
    const value = [...tag.values.values()].find(({ key, group }) => key === rule.key && group === rule.group)!;
    return { rule, series: seriesOf(tag, value) };
  });
}

function digestOf({ tag, key, condition, forMs }: ValueRule): string {
  return JSON.stringify([tag, key, condition, forMs]);
}

function payloadOf(rule: ValueRule, eventType: string, occurredAtMs: number, sample: Sample | undefined): string {
  const { name, tag, asset, instrumentation, key } = rule;
  const data = {
    key,
    value: sample?.value ?? null,
    timestamp: sample === undefined ? null : new Date(sample.timestampMs).toISOString(),
    ...(sample?.status === undefined ? {} : { status: sample.status }),
  };
  return JSON.stringify({
    event_type: eventType,
    occurred_at: new Date(occurredAtMs).toISOString(),
    content: {
      rule: name,
      tag,
      asset: { id: asset },
      ...(instrumentation === undefined ? {} : { instrumentation: { id: instrumentation } }),
      data,
    },
  });
}
