/** The sources in tags.yaml. A reload recreates only the sources whose configuration changed. */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Brokers } from '../broker/brokers.ts';
import { namesInstrumentation } from '../config/instrumentations.ts';
import type { Source, Tags } from '../config/tags.ts';
import { Gate, type GateOptions } from '../sources/intake/gate.ts';
import type { Intake } from '../sources/intake/intake.ts';
import { type Point, pointsOf } from '../sources/points.ts';
import {
  type RunningSource,
  type ScanStep,
  Shared,
  type SourceContext,
  type SourceKind,
} from '../sources/source-kind.ts';
import { type SourceReport, sourceReport } from '../sources/source-report.ts';
import { listenTo, type TestedReport, testedReport } from '../sources/source-test.ts';
import { type NamedValue, WriteRejected, type WriteTarget } from '../sources/writes/writer.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { BufferFlow } from './buffer-flow.ts';

export interface TagSourcesOptions {
  kinds: readonly SourceKind[];
  stateDir: string;
  tags: Tags;
  valuesPath: string;
  store: Pick<BufferFlow['values'], 'notes'>;
  intake: Intake;
  /** Options common to all gates. */
  gate: Pick<GateOptions, 'committer' | 'stamps' | 'watch' | 'readings' | 'countIngested' | 'countAhead'>;
  brokers: Brokers;
  clock: Clock;
  log: Logger;
}

interface Running {
  /** Configuration of the source, as returned by `#describe`. */
  configuration: string;
  kind: SourceKind;
  gate: Gate;
  source: RunningSource;
  openedMs: number;
  points: readonly Point[];
}

export class TagSources {
  readonly #options: TagSourcesOptions;
  #tags: Tags;
  #valuesPath: string;
  readonly #running = new Map<string, Running>();
  readonly #shared = new Shared();
  /** Sources that were stopped for a reload and not yet replaced, by name. */
  readonly #replaced = new Map<string, RunningSource>();
  /** Sources that could not be opened, by name. */
  readonly #unopened = new Map<string, { kind: string; problem: string; sinceMs: number }>();

  constructor(options: TagSourcesOptions) {
    this.#options = options;
    this.#tags = options.tags;
    this.#valuesPath = options.valuesPath;
  }

  /** Sets the configuration that `apply` uses. */
  setTags(tags: Tags, valuesPath: string): void {
    this.#tags = tags;
    this.#valuesPath = valuesPath;
  }

  /** Stops, updates, replaces and opens sources as configured, while `isWanted` returns true. */
  async apply(isWanted: () => boolean): Promise<void> {
    const { sources } = this.#tags;
    for (const [name, running] of [...this.#running]) {
      if (sources.get(name)?.kind === running.kind.kind) continue;
      this.#running.delete(name);
      await end(running, true);
    }
    for (const name of this.#unopened.keys()) if (!sources.has(name)) this.#unopened.delete(name);
    for (const name of this.#replaced.keys()) if (!sources.has(name)) this.#leaveReplaced(name);
    for (const source of sources.values()) {
      if (!isWanted()) return;
      const configuration = this.#describe(source);
      const running = this.#running.get(source.name);
      if (running?.configuration === configuration) continue;
      if (running && (await this.#update(running, source, configuration))) continue;
      if (running) {
        this.#running.delete(source.name);
        this.#replaced.set(source.name, running.source);
        await end(running, false);
      }
      await this.#open(source, configuration);
    }
    // A broker sends stored messages as soon as it is connected, so all sources must subscribe first.
    this.#options.brokers.start();
  }

  /** Stops all sources. Resolves when their values are stored or rejected. */
  async close(): Promise<void> {
    await Promise.all([...this.#running.values()].map((running) => end(running, false)));
    for (const [name, { source }] of this.#running) this.#replaced.set(name, source);
    this.#running.clear();
    this.#unopened.clear();
  }

  /** Returns one report per source. */
  reports(): SourceReport[] {
    const nowMs = this.#options.clock.monotonicMs();
    const running = [...this.#running].map(([name, { kind, source, gate, points, openedMs }]) => {
      const isPolled = !kind.reportsOnlyChanges;
      return sourceReport({ name, kind: kind.kind, state: source.state(), gate, points, openedMs, isPolled }, nowMs);
    });
    const unopened = [...this.#unopened].map(([name, { kind, problem, sinceMs }]) => {
      const state = { connected: false, sinceMs, problem, errors: 1, pollsLate: 0 };
      const points = pointsOf(this.#tags.tags, name, this.#options.intake);
      return sourceReport({ name, kind, state, points, openedMs: sinceMs, isPolled: false }, nowMs);
    });
    return [...running, ...unopened];
  }

  /** Reads all values of these sources, or of all sources, once. Waits for values that are not polled. */
  async test(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<TestedReport[]> {
    const chosen = names.length === 0 ? [...this.#running] : names.map((name) => [name, this.#get(name)] as const);
    const tested = chosen.map(async ([name, running]) => {
      const source = this.#tags.sources.get(name)!;
      const values = await this.#testOne(source, running, waitMs, signal);
      return values.map((value) => testedReport(source, running.kind, value, this.#options.clock));
    });
    return (await Promise.all(tested)).flat();
  }

  /** Lists the available items of a source. Throws `UsageError` if the source does not support it. */
  scan(name: string, what: readonly string[], waitMs: number, signal: AbortSignal): AsyncIterable<ScanStep> {
    const { kind, source } = this.#get(name);
    if (!source.scan) throw new UsageError(`sources of the kind ${kind.kind} cannot be scanned`);
    return source.scan(what, waitMs, signal);
  }

  /** Returns the target of a write. Throws `WriteRejected` if the value does not exist or is not writable. */
  writeTarget({ tag, key, group }: NamedValue): WriteTarget {
    const found = this.#tags.tags.get(tag);
    if (found === undefined) throw new WriteRejected(`tags.yaml contains no tag "${tag}"`);
    const values = [...found.values.values()].filter(
      (value) => value.key === key.toLowerCase() && (group === undefined || value.group === group.toLowerCase()),
    );
    const [value] = values;
    if (value === undefined) throw new WriteRejected(`tag "${tag}" has no value "${key}"`);
    if (values.length > 1) throw new WriteRejected(`several groups of tag "${tag}" contain "${key}"`);
    const { writable, source } = value.from ?? {};
    const running = source === undefined ? undefined : this.#running.get(source);
    if (writable === undefined) throw new WriteRejected(`"${key}" of tag "${tag}" is not writable`);
    const series = this.#options.intake.seriesOf(found, value);
    const point = running?.points.find((one) => one.series === series);
    const configured = this.#tags.sources.get(source!);
    if (running === undefined || point === undefined || configured === undefined)
      throw new UsageError(`the source "${source}" is not running`);
    const rules = running.kind.writing!;
    return {
      name: point.name,
      value: { tag, key: value.key, group: value.group },
      writable,
      rules,
      targets: rules.targetsOf(configured.spec, point.spec),
      point,
      source: running.source,
      gate: running.gate,
    };
  }

  #get(name: string): Running {
    const running = this.#running.get(name);
    if (running) return running;
    throw new UsageError(`unknown source "${name}"`, 'Run `tagferry sources ls` to list the sources.');
  }

  async #testOne(source: Source, running: Running, waitMs: number, signal: AbortSignal) {
    const { stateDir, clock, log } = this.#options;
    const { gate, kind, points } = running;
    if (running.source.test) return await running.source.test(signal, waitMs);
    // Reading host metrics does not affect the source.
    if (kind.test && kind.everyMs !== undefined) {
      return await kind.test({ source, stateDir, points, clock, log, waitMs, signal });
    }
    return await listenTo(gate, points, clock, waitMs, signal);
  }

  /** Returns whether the running source accepts the configuration without a restart. */
  async #update(running: Running, source: Source, configuration: string): Promise<boolean> {
    if (!running.gate.usesTimesOf(source)) return false;
    const context = this.#contextOf(source, running.gate);
    if (!(await running.source.follow?.(context))) return false;
    running.configuration = configuration;
    running.points = (context as SourceContext).points;
    return true;
  }

  async #open(source: Source, configuration: string): Promise<void> {
    const { kinds, gate: options, clock, log } = this.#options;
    const { name, timeFrom } = source;
    const kind = kinds.find((one) => one.kind === source.kind)!;
    const gate = new Gate({ ...options, source: name, timeFrom, clock, log });
    const context = this.#contextOf(source, gate);
    const openedMs = clock.monotonicMs();
    try {
      const opened = await kind.open(context);
      opened.start();
      const { points } = context as SourceContext;
      this.#running.set(name, { configuration, kind, gate, source: opened, openedMs, points });
    } catch (error) {
      this.#unopened.set(name, { kind: kind.kind, problem: codeOf(error) ?? messageOf(error), sinceMs: openedMs });
      throw error;
    }
    this.#unopened.delete(name);
    this.#leaveReplaced(name);
  }

  /**
   * Removes a replaced source. Its successor has subscribed in the same event loop turn, so only differences are
   * applied to the broker session.
   */
  #leaveReplaced(name: string): void {
    this.#replaced.get(name)?.leave?.();
    this.#replaced.delete(name);
  }

  #contextOf(source: Source, gate: Gate): SourceContext<never, never> {
    const { stateDir, store, intake, brokers, clock, log } = this.#options;
    const prefix = `source/${source.name}/`;
    const context: SourceContext = {
      source,
      points: pointsOf(this.#tags.tags, source.name, intake),
      gate,
      intake,
      instance: gatewayName(stateDir, 'sources'),
      stateDir,
      brokers,
      shared: this.#shared,
      notes: async () => {
        const found = await store.notes(prefix);
        return new Map(found.map(({ name, text }) => [name.slice(prefix.length), text ?? '']));
      },
      clock,
      log,
    };
    return context as SourceContext<never, never>;
  }

  /** Returns the entire configuration that a source depends on, as text for comparison. */
  #describe(source: Source): string {
    const values = [...this.#tags.tags.values()].flatMap((tag) =>
      [...tag.values.values()]
        .filter((value) => value.from?.source === source.name)
        .map((value) => [tag.name, tag.asset, tag.instrumentation, value]),
    );
    return JSON.stringify([source, namesInstrumentation(this.#valuesPath), values]);
  }
}

async function end({ source, gate }: Running, isGone: boolean): Promise<void> {
  await source.stop(isGone);
  await gate.stop();
}
