/** Where values come in: the push listener and what tags.yaml reads by itself. Starts, follows a reload, stops. */

import type { Brokers } from '../broker/brokers.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import { formatListenAddress } from '../config/listen-address.ts';
import type { ListenAddress, Settings } from '../config/settings.ts';
import type { Source, Tags } from '../config/tags.ts';
import type { Logger } from '../logger.ts';
import { HostReader } from '../sources/host.ts';
import { HttpPush } from '../sources/http-push.ts';
import { Intake } from '../sources/intake.ts';
import { ModbusReader } from '../sources/modbus.ts';
import { MqttSource } from '../sources/mqtt.ts';
import { pointsOf } from '../sources/points.ts';
import { PollLoop } from '../sources/poll-loop.ts';
import { Simulator } from '../sources/simulator.ts';

export interface SourcesFlowOptions {
  settings: Settings;
  tags: Tags;
  catalogue: SeriesCatalogue;
  append(columns: ValueColumns): Promise<void>;
  countIngested(source: string, values: number): void;
  brokers: Brokers;
  clock: Clock;
  log: Logger;
}

/** One source of tags.yaml at work, and what it was made from: a reload leaves alone what has not changed. */
interface Running {
  made: string;
  stop(): void | Promise<void>;
}

export class SourcesFlow {
  readonly #options: SourcesFlowOptions;
  readonly intake: Intake;
  #tags: Tags;
  #push: HttpPush | undefined;
  #listening: ListenAddress | undefined;
  readonly #running = new Map<string, Running>();

  constructor(options: SourcesFlowOptions) {
    this.#options = options;
    this.#tags = options.tags;
    this.intake = new Intake({
      catalogue: options.catalogue,
      tags: options.tags.tags,
      sink: this.#sink,
      clock: options.clock,
      countIngested: (source, values) => options.countIngested(source, values),
    });
  }

  get #sink() {
    return { append: (columns: ValueColumns) => this.#options.append(columns) };
  }

  /** Where programs push to, for `status`. */
  get listening(): string | undefined {
    return this.#listening && formatListenAddress(this.#listening);
  }

  async start(): Promise<void> {
    const { settings, clock, log } = this.#options;
    if (settings.ingestListen) {
      this.#push = new HttpPush({
        listen: settings.ingestListen,
        token: settings.ingestToken,
        intake: this.intake,
        clock,
        log,
      });
      this.#listening = await this.#push.start();
    }
    await this.#follow();
  }

  /** New tags, sources and `INGEST_TOKEN`; what did not change goes on without a gap. */
  async reload(tags: Tags, ingestToken: string | undefined): Promise<void> {
    this.#push?.setToken(ingestToken);
    this.#tags = tags;
    this.intake.replaceTags(tags.tags);
    await this.#follow();
  }

  async #follow(): Promise<void> {
    const wanted = new Map([...this.#tags.sources.values()].map((source) => [source.name, this.#describe(source)]));
    for (const [name, running] of [...this.#running]) {
      if (wanted.get(name) === running.made) continue;
      this.#running.delete(name);
      await running.stop();
    }
    for (const source of this.#tags.sources.values()) {
      if (this.#running.has(source.name)) continue;
      const running = this.#open(source);
      if (running) this.#running.set(source.name, { made: wanted.get(source.name)!, stop: () => running.stop() });
    }
  }

  /** Everything that a source depends on, as text to compare. */
  #describe(source: Source): string {
    const values = [...this.#tags.tags.values()].flatMap((tag) =>
      [...tag.values.values()]
        .filter((value) => value.from?.source === source.name)
        .map((value) => [tag.name, tag.asset, tag.instrumentation, value]),
    );
    return JSON.stringify([source, values]);
  }

  #open(source: Source): { stop(): void | Promise<void> } | undefined {
    const { clock, log } = this.#options;
    switch (source.kind) {
      case 'host': {
        const reader = new HostReader(pointsOf(this.#tags.tags, source.name, 'host', this.intake), clock, log);
        return this.#poll(source.name, source.everyMs, () => reader.read());
      }
      case 'simulate': {
        const simulator = new Simulator(pointsOf(this.#tags.tags, source.name, 'simulate', this.intake), clock);
        return this.#poll(source.name, source.everyMs, () => simulator.read());
      }
      case 'modbus': {
        const { name, url, unit } = source;
        const points = pointsOf(this.#tags.tags, name, 'modbus', this.intake);
        const reader = new ModbusReader({ name, url, unit, points, clock, log });
        const loop = this.#poll(name, source.everyMs, (signal) => reader.read(signal));
        return {
          async stop() {
            await loop.stop();
            await reader.stop();
          },
        };
      }
      case 'mqtt':
        return this.#subscribe(source.name);
    }
  }

  /** A broker may be there for `publish` alone. */
  #subscribe(name: string): MqttSource | undefined {
    const { clock, log, countIngested, brokers } = this.#options;
    const points = pointsOf(this.#tags.tags, name, 'mqtt', this.intake);
    const broker = brokers.get(name);
    if (!broker || points.length === 0) return undefined;
    const source = new MqttSource({
      name,
      points,
      broker: {
        subscribe: (topic, handler) => broker.subscribe(topic, ({ payload, retained }) => handler(payload, retained)),
      },
      sink: this.#sink,
      clock,
      log,
      countIngested,
    });
    source.start();
    return source;
  }

  #poll(name: string, everyMs: number, read: (signal: AbortSignal) => Promise<ValueColumns>): PollLoop {
    const { clock, log, countIngested } = this.#options;
    const loop = new PollLoop({ name, everyMs, sink: this.#sink, clock, log, countIngested, read });
    loop.start();
    return loop;
  }

  /** Takes nothing in any more; resolves when what was taken has its answer. */
  async stop(): Promise<void> {
    await Promise.all([this.#push?.stop(), ...[...this.#running.values()].map((running) => running.stop())]);
    this.#running.clear();
  }
}
