/**
 * Ingestion: the push listener and the sources in tags.yaml.
 *
 * States: open; paused while the gateway is decommissioned; stopped. Start, reload, pause, resume and stop run one at a
 * time.
 */

import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { InboundServer } from '../base/inbound/inbound-server.ts';
import { ingestBudgetBytes } from '../base/inbound/memory-budget.ts';
import type { Logger } from '../base/logger.ts';
import { memoryLimitBytes } from '../base/memory-limit.ts';
import type { Brokers } from '../broker/brokers.ts';
import { namesInstrumentation } from '../config/instrumentations.ts';
import type { Settings } from '../config/settings.ts';
import type { Tags } from '../config/tags.ts';
import { LastReadings } from '../ops/live/last-readings.ts';
import type { ValueWatch } from '../sources/intake/gate.ts';
import { Intake } from '../sources/intake/intake.ts';
import { ValueTimes } from '../sources/intake/times.ts';
import { HttpPush, type PushRules } from '../sources/push/http-push.ts';
import type { SourceKind } from '../sources/source-kind.ts';
import type { BufferFlow } from './buffer-flow.ts';
import { DECOMMISSIONING, STOPPING, type Unavailable } from './listeners.ts';
import { maxSeries } from './pace.ts';
import { TagSources } from './tag-sources.ts';

export interface SourcesFlowOptions {
  settings: Settings;
  /** Listener for pushed values. */
  listener: InboundServer | undefined;
  tags: Tags;
  kinds: readonly SourceKind[];
  buffer: Pick<BufferFlow, 'catalogue' | 'stamps' | 'committer' | 'values'>;
  countIngested(source: string, values: number): void;
  brokers: Brokers;
  /** Rules on values. */
  watch?: ValueWatch;
  /** Returns the current time of the platform, or `undefined` if it is unknown. */
  platformMs(): number | undefined;
  clock: Clock;
  log: Logger;
}

const UNAVAILABLE = { open: undefined, paused: DECOMMISSIONING, stopped: STOPPING };

export class SourcesFlow {
  readonly #options: SourcesFlowOptions;
  readonly intake: Intake;
  readonly tagSources: TagSources;
  /** Latest readings for display. */
  readonly readings = new LastReadings((series) => this.intake.isOfTag(series));
  readonly #push: HttpPush | undefined;
  readonly #times: ValueTimes;
  #state: keyof typeof UNAVAILABLE = 'open';
  /** Serializes start, reload, pause, resume and stop. */
  #turn: Promise<void> = Promise.resolve();

  constructor(options: SourcesFlowOptions) {
    const { settings, listener: server, buffer, tags, kinds, brokers, watch, countIngested, clock, log } = options;
    const { catalogue, committer, stamps, values } = buffer;
    this.#options = options;
    this.#times = new ValueTimes(settings.earliestTimeMs, options.platformMs);
    const gate = {
      committer,
      stamps,
      watch,
      // Only the page displays readings.
      readings: settings.opsListen ? this.readings : undefined,
      countIngested,
      times: this.#times,
    };
    this.intake = new Intake({
      ...gate,
      catalogue,
      tags: tags.tags,
      byInstrumentation: namesInstrumentation(settings.valuesPath),
      maxSeries: maxSeries(settings),
      clock,
      log,
    });
    const { stateDir, valuesPath } = settings;
    const { intake } = this;
    if (server) {
      const bytesUnderWay = ingestBudgetBytes(memoryLimitBytes());
      this.#push = new HttpPush({ server, rules: pushRules(settings), intake, clock, log, bytesUnderWay });
    }
    this.tagSources = new TagSources({
      kinds,
      stateDir,
      tags,
      valuesPath,
      store: values,
      intake,
      gate,
      brokers,
      retry: () => void this.#inTurn(() => this.#applyTags()).catch(() => {}),
      clock,
      log,
    });
  }

  /** Returns the address that programs push to, for `status`. */
  get listening(): string | undefined {
    return this.#options.listener?.address;
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
    this.#push?.start();
    await this.#applyTags();
  }

  async #applyTags(): Promise<void> {
    if (this.#state === 'open') await this.tagSources.apply(() => this.#state === 'open');
  }

  /** Applies tags, sources, push rules and VALUES_PATH. Unchanged sources keep running. */
  reload(tags: Tags, settings: Settings): Promise<void> {
    return this.#inTurn(async () => {
      this.#push?.setRules(pushRules(settings));
      this.#times.earliestMs = settings.earliestTimeMs;
      this.tagSources.setTags(tags, settings.valuesPath);
      this.intake.reload(tags.tags, namesInstrumentation(settings.valuesPath), maxSeries(settings));
      await this.#applyTags();
    });
  }

  /** Returns the reason why values are not accepted; `undefined` if they are accepted. */
  get unavailable(): Unavailable | undefined {
    return UNAVAILABLE[this.#state];
  }

  /** Throws while values are not accepted. */
  requireOpen(): void {
    if (this.#state === 'open') return;
    throw new UsageError('values are not accepted: this gateway is being decommissioned or is stopping');
  }

  /** Stops accepting values until `resume`. Resolves when accepted values are stored or rejected. */
  async pause(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'paused';
    await this.#inTurn(() => this.#close());
  }

  /** Applies the current configuration. Does nothing after `stop`. */
  async resume(): Promise<void> {
    if (this.#state !== 'paused') return;
    this.#state = 'open';
    await this.#inTurn(() => this.#open());
  }

  /** Stops accepting values. Resolves when accepted values are stored or rejected. */
  stop(): Promise<void> {
    this.#state = 'stopped';
    return this.#inTurn(() => this.#close());
  }

  async #close(): Promise<void> {
    await Promise.all([this.#push?.stop(), this.tagSources.close()]);
  }
}

function pushRules(settings: Settings): PushRules {
  const { ingestToken: token, ingestHosts: hosts } = settings;
  const { ingestTagFrom: tagFrom, ingestKeyFrom: keyFrom } = settings;
  return { token, hosts, lines: { tagFrom, keyFrom } };
}
