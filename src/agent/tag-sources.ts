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
import { listenTo, type TestContext, type TestedReport, testedReport, testSource } from '../sources/source-test.ts';
import { type SourceReport, SourceStatus } from '../sources/status.ts';
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
  gate: Pick<GateOptions, 'committer' | 'stamps' | 'watch' | 'readings' | 'countIngested' | 'times'>;
  brokers: Brokers;
  /** Called a minute after a source could not be opened. Calls `apply` when no other call is running. */
  retry(): void;
  clock: Clock;
  log: Logger;
}

const RETRY_MS = 60_000;

interface Running {
  /** Configuration of the source, as returned by `#describe`. */
  configuration: string;
  /** Configuration of the source without its values. */
  device: string;
  kind: SourceKind;
  gate: Gate;
  source: RunningSource;
  points: readonly Point[];
}

export class TagSources {
  readonly #options: TagSourcesOptions;
  #tags: Tags;
  #valuesPath: string;
  readonly #running = new Map<string, Running>();
  /** Latest sent values, by series, which outlive the sources that a reload replaces. */
  readonly #sent: NonNullable<GateOptions['sent']> = new Map();
  readonly #shared = new Shared();
  /** Sources that were stopped for a reload and not yet replaced, by name. */
  readonly #replaced = new Map<string, RunningSource>();
  /** Sources that could not be opened, by name. */
  readonly #unopened = new Map<string, SourceStatus>();
  #cancelRetry: () => void = () => {};

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

  /**
   * Stops, updates, replaces and opens sources as configured, while `isWanted` returns true. A source that cannot be
   * opened is reported and retried, and does not affect the others.
   */
  async apply(isWanted: () => boolean): Promise<void> {
    const { sources } = this.#tags;
    this.#cancelRetry();
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
      await this.#open(source, configuration, running);
    }
    if (this.#unopened.size > 0) this.#cancelRetry = this.#options.clock.after(RETRY_MS, this.#options.retry);
    // A broker sends stored messages as soon as it is connected, so all sources must subscribe first.
    this.#options.brokers.start();
  }

  /** Stops all sources. Resolves when their values are stored or rejected. */
  async close(): Promise<void> {
    this.#cancelRetry();
    await Promise.all([...this.#running.values()].map((running) => end(running, false)));
    for (const [name, { source }] of this.#running) this.#replaced.set(name, source);
    this.#running.clear();
    this.#unopened.clear();
  }

  /** Returns one report per source. */
  reports(): SourceReport[] {
    const running = [...this.#running.values()].map(({ gate }) => gate.status.report(gate.waiting));
    const unopened = [...this.#unopened.values()].map((status) => status.report(0));
    return [...running, ...unopened];
  }

  /** Reads all values of these sources, or of all sources, once. Waits for values that are not polled. */
  async test(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<TestedReport[]> {
    const chosen = names.length === 0 ? [...this.#tags.sources.values()] : names.map((name) => this.#get(name));
    const tested = chosen.map((source) => this.#testOne(source, waitMs, signal));
    return (await Promise.all(tested)).flat();
  }

  /** Lists the available items of a source. Throws `UsageError` if the source does not support it. */
  async *scan(name: string, what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const source = this.#get(name);
    const kind = this.#kindOf(source);
    if (!kind.scan) throw new UsageError(`sources of the kind ${kind.kind} cannot be scanned`);
    const { stateDir, brokers, clock } = this.#options;
    const separate = await brokers.inspection(source.name);
    yield* kind.scan({ source, stateDir, brokers: separate, clock, signal }, what, waitMs);
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
      status: running.gate.status,
    };
  }

  #get(name: string): Source {
    const source = this.#tags.sources.get(name);
    if (source) return source;
    throw new UsageError(`unknown source "${name}"`, 'Run `tagferry sources ls` to list the sources.');
  }

  #kindOf({ kind }: Source): SourceKind {
    return this.#options.kinds.find((one) => one.kind === kind)!;
  }

  async #testOne(source: Source, waitMs: number, signal: AbortSignal): Promise<TestedReport[]> {
    const { clock, brokers } = this.#options;
    const kind = this.#kindOf(source);
    const running = this.#running.get(source.name);
    if (!kind.isTestedWhileRunning || running === undefined) {
      const context = { ...this.#partsOf(source), brokers: await brokers.inspection(source.name) };
      return await testSource(
        kind,
        { ...context, times: this.#options.gate.times, instance: `${context.instance}-test` },
        waitMs,
        signal,
      );
    }
    const { gate, points } = running;
    const values = await listenTo(gate.status, points, clock, waitMs, signal, () => running.source.poll?.());
    return values.map((value) => testedReport(source, kind, value, clock));
  }

  /** Returns whether the running source accepts the configuration without a restart. */
  async #update(running: Running, source: Source, configuration: string): Promise<boolean> {
    if (running.gate.timeFrom !== source.timeFrom) return false;
    const context = this.#contextOf(source, running.gate);
    if (!(await running.source.follow?.(context))) return false;
    running.configuration = configuration;
    running.device = deviceOf(source);
    running.points = running.gate.status.points = (context as SourceContext).points;
    return true;
  }

  /** `replaced`: source whose counters are continued. */
  async #open(source: Source, configuration: string, replaced?: Running): Promise<void> {
    const { gate: options, clock, log } = this.#options;
    const { name, timeFrom } = source;
    const kind = this.#kindOf(source);
    const points = pointsOf(this.#tags.tags, name, this.#options.intake);
    const isPolled = !kind.reportsOnlyChanges;
    const status = new SourceStatus({ name, kind: kind.kind, points, isPolled, clock, log });
    if (replaced) status.continue(replaced.gate.status, replaced.device === deviceOf(source));
    const gate = new Gate({ ...options, status, timeFrom, sent: this.#sent, clock, log });
    try {
      const opened = await kind.open(this.#contextOf(source, gate));
      opened.start();
      const device = deviceOf(source);
      this.#running.set(name, { configuration, device, kind, gate, source: opened, points });
    } catch (error) {
      status.errors++;
      status.disconnect(codeOf(error) ?? messageOf(error));
      this.#unopened.set(name, status);
      const fields = { event: 'source.open_failed', source: name, code: codeOf(error), error: messageOf(error) };
      log.error(fields, 'failed to open source, retrying every minute');
      return;
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
    const { store, log } = this.#options;
    const prefix = `source/${source.name}/`;
    const context: SourceContext = {
      ...this.#partsOf(source),
      gate,
      status: gate.status,
      notes: async () => {
        const found = await store.notes(prefix);
        return new Map(found.map(({ name, text }) => [name.slice(prefix.length), text ?? '']));
      },
      isTest: false,
      log,
    };
    return context as SourceContext<never, never>;
  }

  /** Returns the context members that a source and its test share. */
  #partsOf(source: Source): TestContext {
    const { stateDir, intake, brokers, clock } = this.#options;
    return {
      source,
      points: pointsOf(this.#tags.tags, source.name, intake),
      intake,
      instance: gatewayName(stateDir, 'sources'),
      stateDir,
      brokers,
      shared: this.#shared,
      clock,
    };
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

function deviceOf(source: Source): string {
  return JSON.stringify(source);
}

async function end({ source, gate }: Running, isGone: boolean): Promise<void> {
  await source.stop(isGone);
  await gate.stop();
}
