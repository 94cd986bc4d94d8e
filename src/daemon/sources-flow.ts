/** Where values come in: the push listener and what tags.yaml reads by itself. Starts, follows a reload, stops. */

import type { Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, UsageError } from '../base/errors.ts';
import type { InboundServer } from '../base/inbound/inbound-server.ts';
import { ingestBudgetBytes } from '../base/inbound/memory-budget.ts';
import type { ListenAddress } from '../base/listen.ts';
import { formatListenAddress } from '../base/listen-address.ts';
import type { Logger } from '../base/logger.ts';
import { memoryLimitBytes } from '../base/memory-limit.ts';
import type { Brokers } from '../broker/brokers.ts';
import { namesInstrumentation } from '../config/instrumentations.ts';
import type { Settings } from '../config/settings.ts';
import type { Source, Tags } from '../config/tags.ts';
import { Gate } from '../sources/gate.ts';
import { Intake } from '../sources/intake.ts';
import { LastReadings } from '../sources/last-readings.ts';
import { type Point, pointsOf } from '../sources/points.ts';
import { HttpPush, type PushRules } from '../sources/push/http-push.ts';
import { runningFacts, unopenedFacts } from '../sources/source-facts.ts';
import {
  type RunningSource,
  type ScanStep,
  Shared,
  type SourceContext,
  type SourceKind,
} from '../sources/source-kind.ts';
import { type SourceReport, sourceReports } from '../sources/source-report.ts';
import { listenTo, type TestedReport, testedReport } from '../sources/source-test.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { BufferFlow } from './buffer-flow.ts';
import { certificateFiles } from './certificate-files.ts';
import { maxSeries } from './pace.ts';
import { refusingListener } from './refusing-listener.ts';

export interface SourcesFlowOptions {
  settings: Settings;
  /** Where the certificate of the listener is noted. */
  certificates: Certificates;
  tags: Tags;
  kinds: readonly SourceKind[];
  buffer: Pick<BufferFlow, 'catalogue' | 'stamps' | 'committer' | 'values' | 'isKept'>;
  countIngested(source: string, values: number): void;
  /** Of them: values whose time lies more than a day ahead. */
  countAhead(source: string, values: number): void;
  brokers: Brokers;
  clock: Clock;
  log: Logger;
}

/** One source of tags.yaml at work, and what it was made from: a reload leaves alone what has not changed. */
interface Running {
  made: string;
  kind: string;
  gate: Gate;
  source: RunningSource;
  openedMs: number;
  points: readonly Point[];
}

export class SourcesFlow {
  readonly #options: SourcesFlowOptions;
  readonly intake: Intake;
  /** For people who look. */
  readonly readings = new LastReadings((series) => this.intake.isOfTag(series));
  #tags: Tags;
  #settings: Settings;
  #byInstrumentation: boolean;
  #push: HttpPush | undefined;
  #refusing: InboundServer | undefined;
  #listening: ListenAddress | undefined;
  readonly #saidAhead = new Set<string>();
  readonly #running = new Map<string, Running>();
  readonly #shared = new Shared();
  /** Sources that were stopped for a reload and have no successor yet, by name. */
  readonly #replaced = new Map<string, RunningSource>();
  /** Sources of tags.yaml that could not be opened, by name. */
  readonly #unopened = new Map<string, { kind: string; problem: string; sinceMs: number }>();
  #state: 'open' | 'paused' | 'stopped' = 'open';
  /** Start, reload, pause, resume and stop run one after another. */
  #turn: Promise<void> = Promise.resolve();

  constructor(options: SourcesFlowOptions) {
    const { buffer, tags, clock } = options;
    this.#options = options;
    this.#tags = tags;
    this.#settings = options.settings;
    this.#byInstrumentation = namesInstrumentation(options.settings.valuesPath);
    this.intake = new Intake({
      readings: this.#keptReadings,
      catalogue: buffer.catalogue,
      tags: tags.tags,
      byInstrumentation: this.#byInstrumentation,
      sink: buffer.committer,
      stamps: buffer.stamps,
      maxSeries: maxSeries(options.settings),
      clock,
      countIngested: (source, values) => options.countIngested(source, values),
      countAhead: (source, values) => this.#sayAhead(source, values),
    });
    buffer.isKept = (series) => this.intake.isOfTag(series);
  }

  /** Nothing is kept where no page shows it. */
  get #keptReadings(): LastReadings | undefined {
    return this.#options.settings.opsListen ? this.readings : undefined;
  }

  /** Counted each time, said once a source: its clock will not be set by a line in our log. */
  #sayAhead(source: string, values: number): void {
    const { countAhead, log } = this.#options;
    countAhead(source, values);
    if (this.#saidAhead.has(source)) return;
    this.#saidAhead.add(source);
    log.warn(
      { event: 'ingest.time_ahead', source, values },
      'values came with times more than a day ahead; they are taken as they are',
    );
  }

  /** Where programs push to, for `status`. */
  get listening(): string | undefined {
    return this.#listening && formatListenAddress(this.#listening);
  }

  /** One report per source of tags.yaml. */
  reports(): SourceReport[] {
    const nowMs = this.#options.clock.monotonicMs();
    const running = [...this.#running].map(([name, one]) => {
      const isPolled = !this.#kindOf(one.kind).tellsChanges;
      return runningFacts({ name, ...one, isPolled, nowMs });
    });
    const unopened = [...this.#unopened].map(([name, one]) =>
      unopenedFacts({ name, ...one, values: pointsOf(this.#tags.tags, name, this.intake).length }),
    );
    return sourceReports([...running, ...unopened], nowMs);
  }

  /** Every value of these sources, or of all, read once; what comes by itself is waited for. */
  async test(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<TestedReport[]> {
    const { clock } = this.#options;
    for (const name of names) {
      if (!this.#running.has(name))
        throw new UsageError(`there is no source "${name}"`, 'tagferry sources ls lists them');
    }
    const chosen = [...this.#running].filter(([name]) => names.length === 0 || names.includes(name));
    const tested = chosen.map(async ([name, running]) => {
      const kind = this.#kindOf(running.kind);
      const source = this.#tags.sources.get(name)!;
      const values = await this.#testOne(source, kind, running, waitMs, signal);
      return values.map((value) => testedReport(source, kind, value, clock));
    });
    return (await Promise.all(tested)).flat();
  }

  /** What a source offers of what was named; throws `UsageError` where it cannot tell. */
  scan(name: string, what: readonly string[], waitMs: number, signal: AbortSignal): AsyncIterable<ScanStep> {
    const running = this.#running.get(name);
    if (!running) throw new UsageError(`there is no source "${name}"`, 'tagferry sources ls lists them');
    if (!running.source.scan) throw new UsageError(`a ${running.kind} source cannot be scanned`);
    return running.source.scan(what, waitMs, signal);
  }

  async #testOne(source: Source, kind: SourceKind, running: Running, waitMs: number, signal: AbortSignal) {
    const { clock, log } = this.#options;
    const { gate, points } = running;
    if (running.source.test) return await running.source.test(signal, waitMs);
    // This machine, or nobody: it may be read beside the source.
    const { stateDir } = this.#settings;
    if (kind.test && kind.everyMs !== undefined)
      return await kind.test({ source, stateDir, points, clock, log, waitMs, signal });
    return await listenTo(gate, points, clock, waitMs, signal);
  }

  #kindOf(name: string): SourceKind {
    return this.#options.kinds.find((one) => one.kind === name)!;
  }

  start(): Promise<void> {
    return this.#inTurn(() => this.#open());
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  async #open(): Promise<void> {
    if (this.#state !== 'open') return;
    await this.#listen();
    await this.#follow();
  }

  async #listen(): Promise<void> {
    const { clock, log } = this.#options;
    const settings = this.#settings;
    if (settings.ingestListen) {
      this.#push = new HttpPush({
        listen: settings.ingestListen,
        tls: certificateFiles(settings, 'ingest', this.#options.certificates),
        rules: pushRules(settings),
        intake: this.intake,
        clock,
        log,
        limits: { bytesUnderWay: ingestBudgetBytes(memoryLimitBytes()) },
      });
      this.#listening = await this.#push.start();
    }
  }

  /** Applies tags, sources, push rules and VALUES_PATH. Sources that did not change keep running. */
  reload(tags: Tags, settings: Settings): Promise<void> {
    return this.#inTurn(async () => {
      this.#settings = settings;
      this.#push?.setRules(pushRules(settings));
      this.#tags = tags;
      this.#byInstrumentation = namesInstrumentation(settings.valuesPath);
      this.intake.replaceTags(tags.tags, this.#byInstrumentation);
      this.intake.setMaxSeries(maxSeries(settings));
      if (this.#state === 'open') await this.#follow();
      this.readings.forgetOthers();
    });
  }

  async #follow(): Promise<void> {
    const { sources } = this.#tags;
    for (const [name, running] of [...this.#running]) {
      if (sources.get(name)?.kind === running.kind) continue;
      this.#running.delete(name);
      await end(running, true);
    }
    for (const name of this.#unopened.keys()) if (!sources.has(name)) this.#unopened.delete(name);
    for (const name of this.#replaced.keys()) if (!sources.has(name)) this.#leave(name);
    for (const source of sources.values()) {
      if (this.#state !== 'open') return;
      const made = this.#describe(source);
      const running = this.#running.get(source.name);
      if (running?.made === made) continue;
      if (running && (await this.#followed(running, source, made))) continue;
      if (running) {
        this.#running.delete(source.name);
        this.#replaced.set(source.name, running.source);
        await end(running, false);
      }
      await this.#openSource(source, made);
    }
    // Messages that a session stored arrive with the connection: every source has subscribed before.
    this.#options.brokers.start();
  }

  async #followed(running: Running, source: Source, made: string): Promise<boolean> {
    if (!running.gate.givesTimesOf(source)) return false;
    const context = this.#contextOf(source, running.gate);
    if (!(await running.source.follow?.(context))) return false;
    running.made = made;
    running.points = (context as SourceContext).points;
    return true;
  }

  async #openSource(source: Source, made: string): Promise<void> {
    const { name, kind } = source;
    const context = this.#contextOf(source, this.#gateOf(source));
    const { gate, points } = context as SourceContext;
    const nowMs = this.#options.clock.monotonicMs();
    try {
      const opened = await this.#kindOf(kind).open(context);
      opened.start();
      this.#running.set(name, { made, kind, gate, source: opened, openedMs: nowMs, points });
    } catch (error) {
      this.#unopened.set(name, { kind, problem: codeOf(error) ?? messageOf(error), sinceMs: nowMs });
      throw error;
    }
    this.#unopened.delete(name);
    this.#leave(name);
  }

  /** The successor has subscribed in this turn of the event loop: the session of a broker changes by the difference only. */
  #leave(name: string): void {
    this.#replaced.get(name)?.leave?.();
    this.#replaced.delete(name);
  }

  #gateOf({ name, kind, timeFrom, member }: Source): Gate {
    const { buffer, clock, log, countIngested } = this.#options;
    const { committer: sink, stamps } = buffer;
    const countAhead = (source: string, values: number) => this.#sayAhead(source, values);
    const readings = this.#keptReadings;
    const inOrder = this.#kindOf(kind).inOrder === true;
    const times = { timeFrom, member, stamps, clock };
    return new Gate({ source: name, ...times, sink, log, countIngested, countAhead, readings, inOrder });
  }

  #contextOf(source: Source, gate: Gate): SourceContext<never, never> {
    const { brokers, clock, log } = this.#options;
    const beginning = `source/${source.name}/`;
    const points = pointsOf(this.#tags.tags, source.name, this.intake);
    const notes = async () => {
      const found = await this.#options.buffer.values.notes(beginning);
      return new Map(found.map(({ name, text }) => [name.slice(beginning.length), text ?? '']));
    };
    const { intake } = this;
    const { stateDir } = this.#settings;
    const instance = gatewayName(stateDir, 'sources');
    const context = {
      source,
      points,
      gate,
      intake,
      instance,
      stateDir,
      brokers,
      shared: this.#shared,
      notes,
      clock,
      log,
    };
    return context as SourceContext as SourceContext<never, never>;
  }

  /** Everything that a source depends on, as text to compare. */
  #describe(source: Source): string {
    const values = [...this.#tags.tags.values()].flatMap((tag) =>
      [...tag.values.values()]
        .filter((value) => value.from?.source === source.name)
        .map((value) => [tag.name, tag.asset, tag.instrumentation, value]),
    );
    return JSON.stringify([source, this.#byInstrumentation, values]);
  }

  /** Throws while nothing is taken in. */
  demandOpen(): void {
    if (this.#state === 'open') return;
    throw new UsageError('no values are taken in: this gateway is being decommissioned, or stops');
  }

  /** Accepts nothing until `resume`. Resolves when accepted values are stored or rejected. */
  async pause(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'paused';
    await this.#inTurn(async () => {
      await this.#close();
      const listener = refusingListener(this.#settings, this.#options);
      if (!listener || this.#state !== 'paused') return;
      this.#refusing = listener;
      // If another program took the address meanwhile, nothing listens; the pause continues.
      await listener.start().catch(() => {});
    });
  }

  /** Applies the current configuration. Does nothing after `stop`. */
  async resume(): Promise<void> {
    if (this.#state !== 'paused') return;
    this.#state = 'open';
    await this.#inTurn(async () => {
      await this.#refusing?.stop();
      this.#refusing = undefined;
      await this.#open();
    });
  }

  /** Accepts nothing more. Resolves when accepted values are stored or rejected. */
  stop(): Promise<void> {
    this.#state = 'stopped';
    return this.#inTurn(() => this.#close());
  }

  async #close(): Promise<void> {
    await Promise.all([
      this.#push?.stop(),
      this.#refusing?.stop(),
      ...[...this.#running.values()].map((running) => end(running, false)),
    ]);
    for (const [name, { source }] of this.#running) this.#replaced.set(name, source);
    this.#running.clear();
    this.#unopened.clear();
    this.#push = this.#listening = this.#refusing = undefined;
  }
}

function pushRules(settings: Settings): PushRules {
  const { ingestToken: token, ingestHosts: hosts, ingestPartial: partial } = settings;
  const { ingestTagFrom: tagFrom, ingestKeyFrom: keyFrom } = settings;
  return { token, hosts, lines: { partial, tagFrom, keyFrom } };
}

async function end({ source, gate }: Running, isGone: boolean): Promise<void> {
  await source.stop(isGone);
  await gate.stop();
}
