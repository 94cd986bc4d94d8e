import { connect, type MqttClient } from 'mqtt';
import { Mosquitto } from '../../broker/mosquitto.ts';
import { WatchedWay } from '../../broker/watched-way.ts';
import type { FarEnd } from '../far-end.ts';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const KEYS = ['a', 'b', 'c'];
const LEGACY_TOPIC = 'legacy/a';
const OVERSIZED_BYTES = 32_000_000;
/** More than a soak gives within that time. */
const MAX_REMEMBERED = 500;
const PERSISTENCE = 'persistence true\nautosave_on_changes true\nautosave_interval 1';
/** A broker that is killed has written down by then what it heard before; a second and a busy machine. */
const WRITTEN_WITHIN_MS = 3_000;
/** For what the broker still has when producing ends. */
const LAST_WORD_MS = 90_000;

/**
 * A plant that publishes with QoS 1 on Debian's Mosquitto. The obligation is the PUBACK of the agent, read on its way: what a broker that is
 * killed forgets before is the broker's.
 */
export class MqttWay implements Way {
  readonly name = 'mqtt';
  readonly sources: string;
  readonly tags: string;
  readonly broker: Mosquitto;
  readonly #watched: WatchedWay;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #given = new Map<string, Claim>();
  readonly #loop = new Loop(() => this.#give());
  readonly #farEnd: FarEnd;
  /** When the latest were given to the broker. */
  #givenMs: number[] = [];
  #plant: MqttClient | undefined;
  #turn = 0;

  private constructor(
    broker: Mosquitto,
    watched: WatchedWay,
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
    // Version 3.1.1 has no maximum packet size that a broker would respect.
    this.sources = `  broker: { mqtt: "mqtt://127.0.0.1:${port}" }\n  legacy: { mqtt: "mqtt://127.0.0.1:${broker.port}", version: 3 }\n`;
    const values = KEYS.map(
      (key) => `${key}: { unit: 12, from: broker, topic: site/${key}, at: /v, time: /t, status: /q }`,
    );
    values.push(`legacy: { unit: 12, from: legacy, topic: ${LEGACY_TOPIC}, at: /v, time: /t }`);
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
  }

  static async open(asset: number, context: WayContext, farEnd: FarEnd): Promise<MqttWay> {
    const broker = await Mosquitto.make();
    const watched = new WatchedWay(broker.port);
    const way = new MqttWay(broker, watched, await watched.start(), asset, context, farEnd);
    await way.startBroker();
    return way;
  }

  /** What it had heard confirmed, and not written down yet when it was killed, it gives again. */
  async startBroker(): Promise<void> {
    const lastMs = this.#givenMs.at(-1) ?? 0;
    this.#farEnd.givenAgain(this.#givenMs.filter((atMs) => lastMs - atMs < WRITTEN_WITHIN_MS).length);
    this.#givenMs = [];
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
    // Each broker keeps the order of a topic: with the last of each all before are over.
    const end = performance.now() + LAST_WORD_MS;
    for (const key of KEYS) {
      for (let text: string | undefined; text === undefined || !this.#watched.confirmed.has(text); ) {
        if (performance.now() > end)
          throw new Error(`the last message on site/${key} was never confirmed by the agent`);
        // Published anew where a broker was killed with the one before.
        if (text === undefined || performance.now() % 5_000 < 200) text = await this.#publish(key);
        await pause(100);
      }
    }
    for (const [text, claim] of this.#given) {
      if (this.#watched.confirmed.has(text)) this.#context.oracle.acknowledge(claim);
    }
    this.#given.clear();
    this.#watched.confirmed.clear();
  }

  async close(): Promise<void> {
    await this.#loop.end();
    this.#plant?.end(true);
    await this.#watched.stop();
    await this.broker.dispose();
  }

  async #give(): Promise<void> {
    await this.#publish(KEYS[this.#turn++ % KEYS.length]!);
  }

  async #publish(key: string): Promise<string> {
    const { oracle, readings } = this.#context;
    const claim = readings.next(this.name, this.#asset, key, true);
    const { value, timestampMs, status } = claim;
    const quality = status === undefined ? '' : `,"q":"${status}"`;
    const text = `{"v":${numberText(value)},"t":${timestampMs}${quality}}`;
    oracle.offer(claim);
    this.#given.set(text, claim);
    const plant = this.#plant;
    if (plant?.connected) {
      this.#givenMs = [...this.#givenMs.slice(-MAX_REMEMBERED), performance.now()];
      await Promise.race([plant.publishAsync(`site/${key}`, text, { qos: 1 }).catch(() => {}), pause(1_000)]);
    }
    return text;
  }
}
