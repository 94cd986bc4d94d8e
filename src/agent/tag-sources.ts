/** The sources in tags.yaml. A reload recreates only the sources whose configuration changed. */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Brokers } from '../broker/brokers.ts';
import { namesInstrumentation } from '../config/instrumentations.ts';
import type { Source, Tags } from '../config/tags.ts';
import { Gate, type GateOptions } from '../sources/intake/gate.ts';
import type { Intake } from '../sources/intake/intake.ts';
import { TroubleLog } from '../sources/intake/trouble-log.ts';
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

/** A source in tags.yaml. */
interface Opened {
  /** Configuration of the source, as returned by `#describe`. */
  configuration: string;
  /** Configuration of the source without its values. */
  device: string;
  kind: SourceKind;
  gate: Gate;
  points: readonly Point[];
  /** Unset if the source could not be opened, or is being replaced. */
  source: RunningSource | undefined;
}

export class TagSources {
  readonly #options: TagSourcesOptions;
  #tags: Tags;
  #valuesPath: string;
  readonly #opened = new Map<string, Opened>();
  /** Latest sent values, by series, which outlive the sources that a reload replaces. */
  readonly #sent: NonNullable<GateOptions['sent']> = new Map();
  readonly #shared = new Shared();
  /** Sources that were stopped for a reload and not yet replaced, by name. */
  readonly #replaced = new Map<string, RunningSource>();
  readonly #trouble: TroubleLog;
  #cancelRetry: () => void = () => {};

  constructor(options: TagSourcesOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
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
    for (const [name, opened] of [...this.#opened]) {
      if (sources.get(name)?.kind === opened.kind.kind) continue;
      this.#opened.delete(name);
      await end(opened, true);
    }
    for (const name of this.#replaced.keys()) if (!sources.has(name)) this.#leaveReplaced(name);
    for (const source of sources.values()) {
      if (!isWanted()) return;
      const configuration = this.#describe(source);
      const opened = this.#opened.get(source.name);
      if (opened?.source !== undefined) {
        if (opened.configuration === configuration) continue;
        if (await this.#update(opened, source, configuration)) continue;
        this.#replaced.set(source.name, opened.source);
        await end(opened, false);
      }
      await this.#open(source, configuration, opened);
    }
    if ([...this.#opened.values()].some(({ source }) => source === undefined))
      this.#cancelRetry = this.#options.clock.after(RETRY_MS, this.#options.retry);
    // A broker sends stored messages as soon as it is connected, so all sources must subscribe first.
    this.#options.brokers.start();
  }

  /** Stops all sources. Resolves when their values are stored or rejected. */
  async close(): Promise<void> {
    this.#cancelRetry();
    for (const [name, { source }] of this.#opened) if (source !== undefined) this.#replaced.set(name, source);
    await Promise.all([...this.#opened.values()].map((opened) => end(opened, false)));
    this.#opened.clear();
  }

  /** Returns one report per source. */
  reports(): SourceReport[] {
    return [...this.#opened.values()].map(({ gate }) => gate.status.report(gate.waiting));
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
    const opened = source === undefined ? undefined : this.#opened.get(source);
    if (writable === undefined) throw new WriteRejected(`"${key}" of tag "${tag}" is not writable`);
    const series = this.#options.intake.seriesOf(found, value);
    const point = opened?.points.find((one) => one.series === series);
    const configured = this.#tags.sources.get(source!);
    if (opened?.source === undefined || point === undefined || configured === undefined)
      throw new UsageError(`the source "${source}" is not running`);
    const rules = opened.kind.writing!;
    return {
      name: point.name,
      value: { tag, key: value.key, group: value.group },
      writable,
      rules,
      targets: rules.targetsOf(configured.spec, point.spec),
      point,
      source: opened.source,
      status: opened.gate.status,
    };
  }

  #get(name: string): Source {
    const source = this.#tags.sources.get(name);
    if (source) return source;
    throw new UsageError(
      `unknown source "${name}"`,
      'Run `tagferry sources ls` to list the sources, or `tagferry reload` if tags.yaml has changed.',
    );
  }

  #kindOf({ kind }: Source): SourceKind {
    return this.#options.kinds.find((one) => one.kind === kind)!;
  }

  async #testOne(source: Source, waitMs: number, signal: AbortSignal): Promise<TestedReport[]> {
    const { clock, brokers, gate: options } = this.#options;
    const kind = this.#kindOf(source);
    const opened = this.#opened.get(source.name);
    if (kind.isTestedWhileRunning && opened?.source !== undefined) {
      const { gate, points, source: running } = opened;
      const values = await listenTo(gate.status, points, clock, waitMs, signal, () => running.poll?.());
      return values.map((value) => testedReport(source, kind, value, clock));
    }
    const parts = this.#partsOf(source);
    const instance = `${parts.instance}-test`;
    const context = { ...parts, instance, brokers: await brokers.inspection(source.name), times: options.times };
    return await testSource(kind, context, waitMs, signal);
  }

  /** Returns whether the running source accepts the configuration without a restart. */
  async #update(opened: Opened, source: Source, configuration: string): Promise<boolean> {
    if (opened.gate.timeFrom !== source.timeFrom) return false;
    const context = this.#contextOf(source, opened.gate);
    if (!(await opened.source?.follow?.(context as SourceContext<never, never>))) return false;
    const points = context.points;
    opened.gate.status.points = points;
    Object.assign(opened, { configuration, device: JSON.stringify(source), points });
    return true;
  }

  /** `previous`: the same source before the reload or the retry, whose counters are continued. */
  async #open(source: Source, configuration: string, previous?: Opened): Promise<void> {
    const { gate: options, clock, log } = this.#options;
    const { name, timeFrom } = source;
    const kind = this.#kindOf(source);
    const device = JSON.stringify(source);
    const points = pointsOf(this.#tags.tags, name, this.#options.intake);
    const isPolled = !kind.reportsOnlyChanges;
    const status = new SourceStatus({ name, kind: kind.kind, points, isPolled, clock, log });
    if (previous) status.continue(previous.gate.status, previous.device === device);
    const gate = new Gate({ ...options, status, timeFrom, sent: this.#sent, clock, log });
    const opened: Opened = { configuration, device, kind, gate, points, source: undefined };
    try {
      const running = await kind.open(this.#contextOf(source, gate) as SourceContext<never, never>);
      running.start();
      opened.source = running;
      this.#leaveReplaced(name);
      this.#trouble.recovered('source.open_failed', { source: name }, 'source opened', name);
    } catch (error) {
      status.errors++;
      status.disconnect(codeOf(error) ?? messageOf(error));
      const trouble = { event: 'source.open_failed', source: name, code: codeOf(error), error: messageOf(error) };
      this.#trouble.report(trouble, 'failed to open source, retrying every minute', name);
    }
    this.#opened.set(name, opened);
  }

  /**
   * Removes a replaced source. Its successor has subscribed in the same event loop turn, so only differences are
   * applied to the broker session.
   */
  #leaveReplaced(name: string): void {
    this.#replaced.get(name)?.leave?.();
    this.#replaced.delete(name);
  }

  #contextOf(source: Source, gate: Gate): SourceContext {
    const { store, log } = this.#options;
    const prefix = `source/${source.name}/`;
    const notes = async () => {
      const found = await store.notes(prefix);
      return new Map(found.map(({ name, text }) => [name.slice(prefix.length), text ?? '']));
    };
    return { ...this.#partsOf(source), gate, status: gate.status, notes, isTest: false, log };
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

async function end(opened: Opened, isGone: boolean): Promise<void> {
  const { source } = opened;
  // Nothing is written to a source that is stopping.
  opened.source = undefined;
  await source?.stop(isGone);
  await opened.gate.stop();
}
