import { connect, type MqttClient } from 'mqtt';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { RecordingProxy } from '../../e2e/harness/recording-proxy.ts';
import type { FarEnd } from '../far-end.ts';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const KEYS = ['a', 'b', 'c'];
const LEGACY_TOPIC = 'legacy/a';
const OVERSIZED_BYTES = 32_000_000;
/** More messages than a soak publishes within that time. */
const MAX_REMEMBERED = 500;
const PERSISTENCE = 'persistence true\nautosave_on_changes true\nautosave_interval 1';
/** Time after which a broker has persisted a message: its interval of one second, and a margin for a busy machine. */
const WRITTEN_WITHIN_MS = 3_000;
/** Time limit for messages that the broker still has when the producer stops. */
const CONFIRMED_WITHIN_MS = 90_000;

/**
 * A plant that publishes with QoS 1 to Debian's Mosquitto. Messages for which the agent's PUBACK was observed on the
 * wire must be delivered. A killed broker may lose others.
 */
export class MqttWay implements Way {
  readonly name = 'mqtt';
  readonly sources: string;
  readonly tags: string;
  readonly broker: Mosquitto;
  readonly #watched: RecordingProxy;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #published = new Map<string, Claim>();
  readonly #loop = new Loop(() => this.#publishNext());
  readonly #farEnd: FarEnd;
  /** Publication times of the latest messages. */
  #publishedAtMs: number[] = [];
  #plant: MqttClient | undefined;
  #turn = 0;

  private constructor(
    broker: Mosquitto,
    watched: RecordingProxy,
    port: number,
    asset: number,
    context: WayContext,
    farEnd: FarEnd,
  ) {
    this.#farEnd = farEnd;
    this.broker = broker;
    this.#watched = watched;
    this.#context = context;
    this.#asset = asset;
    // Version 3.1.1 does not provide a maximum packet size that a broker would respect.
    this.sources = `  broker: { mqtt: "mqtt://127.0.0.1:${port}" }\n  legacy: { mqtt: "mqtt://127.0.0.1:${broker.port}", version: 3 }\n`;
    const values = KEYS.map(
      (key) => `${key}: { unit: 12, from: broker, topic: site/${key}, at: /v, time: /t, status: /q }`,
    );
    values.push(`legacy: { unit: 12, from: legacy, topic: ${LEGACY_TOPIC}, at: /v, time: /t }`);
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
  }

  static async open(asset: number, context: WayContext, farEnd: FarEnd): Promise<MqttWay> {
    const broker = await Mosquitto.make();
    const watched = new RecordingProxy(broker.port);
    const way = new MqttWay(broker, watched, await watched.start(), asset, context, farEnd);
    await way.startBroker();
    return way;
  }

  /** Starts the broker. It redelivers messages whose confirmation it had not persisted. */
  async startBroker(): Promise<void> {
    const lastMs = this.#publishedAtMs.at(-1) ?? 0;
    this.#farEnd.redelivered(this.#publishedAtMs.filter((atMs) => lastMs - atMs < WRITTEN_WITHIN_MS).length);
    this.#publishedAtMs = [];
    await this.broker.start(`${PERSISTENCE}\npersistence_location ${this.broker.folder}/`);
    this.#plant?.end(true);
    this.#plant = connect(`mqtt://127.0.0.1:${this.broker.port}`, { reconnectPeriod: 200 });
    this.#plant.on('error', () => {});
  }

  produce(perSecond: number): void {
    this.#loop.start(1000 / perSecond);
  }

  /** Publishes as fast as the broker confirms. */
  async burst(count: number): Promise<void> {
    for (let left = count; left > 0; left -= 100) {
      await Promise.all(Array.from({ length: 100 }, (_, i) => this.#publish(KEYS[i % KEYS.length]!)));
    }
  }

  /** Publishes a message that exceeds what the agent accepts, for a source of each protocol version. */
  async publishOversized(): Promise<void> {
    const payload = Buffer.alloc(OVERSIZED_BYTES, 'x');
    const published = [`site/${KEYS[0]}`, LEGACY_TOPIC].map((topic) =>
      this.#plant?.publishAsync(topic, payload, { qos: 1 }),
    );
    await Promise.race([Promise.allSettled(published), pause(10_000)]);
  }

  async rest(): Promise<void> {
    if (!this.#loop.isRunning) return;
    await this.#loop.end();
    // Brokers keep the order of a topic, so all earlier messages are confirmed before the final one.
    const end = performance.now() + CONFIRMED_WITHIN_MS;
    for (const key of KEYS) {
      for (let text: string | undefined; text === undefined || !this.#watched.confirmed.has(text); ) {
        if (performance.now() > end) throw new Error(`the final message on site/${key} was not confirmed by the agent`);
        // Published again if a killed broker lost the previous one.
        if (text === undefined || performance.now() % 5_000 < 200) text = await this.#publish(key);
        await pause(100);
      }
    }
    for (const [text, claim] of this.#published) {
      if (this.#watched.confirmed.has(text)) this.#context.oracle.acknowledge(claim);
    }
    this.#published.clear();
    this.#watched.confirmed.clear();
  }

  async close(): Promise<void> {
    await this.#loop.end();
    this.#plant?.end(true);
    await this.#watched.stop();
    await this.broker.dispose();
  }

  async #publishNext(): Promise<void> {
    await this.#publish(KEYS[this.#turn++ % KEYS.length]!);
  }

  async #publish(key: string): Promise<string> {
    const { oracle, readings } = this.#context;
    const claim = readings.next(this.name, this.#asset, key, true);
    const { value, timestampMs, status } = claim;
    const quality = status === undefined ? '' : `,"q":"${status}"`;
    const text = `{"v":${numberText(value)},"t":${timestampMs}${quality}}`;
    oracle.offer(claim);
    this.#published.set(text, claim);
    const plant = this.#plant;
    if (plant?.connected) {
      this.#publishedAtMs = [...this.#publishedAtMs.slice(-MAX_REMEMBERED), performance.now()];
      await Promise.race([plant.publishAsync(`site/${key}`, text, { qos: 1 }).catch(() => {}), pause(1_000)]);
    }
    return text;
  }
}
