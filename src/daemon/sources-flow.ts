/** Where values come in: the push listener and what tags.yaml reads by itself. Starts, follows a reload, stops. */

import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
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
import type { SourceFacts } from '../sources/source-facts.ts';
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
  #state: 'open' | 'paused' | 'stopped' = 'open';

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

  /** What is known of each source of tags.yaml now. */
  reports(): SourceReport[] {
    return sourceReports(this.#facts(), this.#options.clock.monotonicMs());
  }

  #facts(): SourceFacts[] {
    return [...this.#running].map(([name, { kind, gate, source, openedMs, points }]) => {
      const { stored, lastStoredMs, lastTakenMs, waiting } = gate;
      const everyMs = Math.min(...points.map((point) => point.everyMs).filter((ms) => ms > 0));
      const isPolled = Number.isFinite(everyMs) && !this.#kindOf(kind).tellsChanges;
      const polled = { values: points.length, everyMs: isPolled ? everyMs : 0 };
      return { ...source.state(), ...polled, name, kind, openedMs, stored, lastStoredMs, lastTakenMs, waiting };
    });
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

  async start(): Promise<void> {
    await this.#listen();
    await this.#follow();
  }

  async #listen(): Promise<void> {
    const { clock, log } = this.#options;
    const settings = this.#settings;
    if (settings.ingestListen) {
      this.#push = new HttpPush({
        listen: settings.ingestListen,
        tls: certificateFiles(settings, 'ingest'),
        rules: pushRules(settings),
        intake: this.intake,
        clock,
        log,
        limits: { bytesUnderWay: ingestBudgetBytes(memoryLimitBytes()) },
      });
      this.#listening = await this.#push.start();
    }
  }

  /** New tags, sources, rules of pushing and what VALUES_PATH names; what did not change goes on without a gap. */
  async reload(tags: Tags, settings: Settings): Promise<void> {
    this.#settings = settings;
    this.#push?.setRules(pushRules(settings));
    this.#tags = tags;
    this.#byInstrumentation = namesInstrumentation(settings.valuesPath);
    this.intake.replaceTags(tags.tags, this.#byInstrumentation);
    this.intake.setMaxSeries(maxSeries(settings));
    if (this.#state === 'open') await this.#follow();
    this.readings.forgetOthers();
  }

  async #follow(): Promise<void> {
    for (const [name, running] of [...this.#running]) {
      if (this.#tags.sources.get(name)?.kind === running.kind) continue;
      this.#running.delete(name);
      await end(running, true);
    }
    for (const source of this.#tags.sources.values()) {
      const made = this.#describe(source);
      const running = this.#running.get(source.name);
      if (running?.made === made) continue;
      const gate = running?.gate ?? this.#gateOf(source);
      const context = this.#contextOf(source, gate);
      if (running && (await running.source.follow?.(context))) {
        running.made = made;
        running.points = (context as SourceContext).points;
        continue;
      }
      if (running) await end(running, false);
      const kind = this.#kindOf(source.kind);
      const fresh = running ? this.#contextOf(source, this.#gateOf(source)) : context;
      const opened = await kind.open(fresh);
      const openedMs = this.#options.clock.monotonicMs();
      const { gate: its, points } = fresh as SourceContext;
      this.#running.set(source.name, { made, kind: source.kind, gate: its, source: opened, openedMs, points });
      opened.start();
    }
    // What sessions kept comes with the connection: by now somebody takes it.
    this.#options.brokers.start();
  }

  #gateOf({ name, kind, timeFrom }: Source): Gate {
    const { buffer, clock, log, countIngested } = this.#options;
    const { committer: sink, stamps } = buffer;
    const countAhead = (source: string, values: number) => this.#sayAhead(source, values);
    const readings = this.#keptReadings;
    const inOrder = this.#kindOf(kind).inOrder === true;
    return new Gate({ source: name, timeFrom, sink, stamps, clock, log, countIngested, countAhead, readings, inOrder });
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

  /** Takes nothing in until `resume`; resolves when what was taken has its answer. */
  async pause(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'paused';
    await this.#close();
    const listener = refusingListener(this.#settings, this.#options);
    if (!listener || this.#state !== 'paused') return;
    this.#refusing = listener;
    // Where another took the address in between there is none; that is no reason not to go on.
    await listener.start().catch(() => {});
  }

  /** As the configuration of now has it. Nothing after `stop`. */
  async resume(): Promise<void> {
    if (this.#state !== 'paused') return;
    this.#state = 'open';
    await this.#refusing?.stop();
    this.#refusing = undefined;
    await this.start();
  }

  /** Takes nothing in any more; resolves when what was taken has its answer. */
  async stop(): Promise<void> {
    this.#state = 'stopped';
    await this.#close();
  }

  async #close(): Promise<void> {
    await Promise.all([
      this.#push?.stop(),
      this.#refusing?.stop(),
      ...[...this.#running.values()].map((running) => end(running, false)),
    ]);
    this.#running.clear();
    this.#push = this.#listening = this.#refusing = undefined;
  }
}

function pushRules(settings: Settings): PushRules {
  const { ingestToken: token, ingestHosts: hosts, ingestPartial: partial, ingestTagFrom: tagFrom } = settings;
  return { token, hosts, lines: { partial, tagFrom } };
}

async function end({ source, gate }: Running, isGone: boolean): Promise<void> {
  await source.stop(isGone);
  await gate.stop();
}
