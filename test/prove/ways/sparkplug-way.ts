import { createRequire } from 'node:module';
import { deflateSync, gzipSync } from 'node:zlib';
import { connectAsync, type MqttClient } from 'mqtt';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { RecordingProxy } from '../../e2e/harness/recording-proxy.ts';
import type { Claim } from '../oracle.ts';
import { Loop, pause, type Way, type WayContext } from './way.ts';

/** Eclipse Tahu's encoder. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};
const tahu = get('spBv1.0');
const KEYS = ['a', 'b', 'c'];
const [GROUP, NODE] = ['Plant1', 'press'];
/** The agent asks a node for its birth certificate after each restart. */
const CONFIRMED_WITHIN_MS = 90_000;

/**
 * An edge node that publishes with QoS 1 over Debian's Mosquitto: a birth certificate when one is requested, then
 * messages that name their metrics by alias. A message must be delivered once the agent's PUBACK is observed on the
 * wire.
 */
export class SparkplugWay implements Way {
  readonly name = 'sparkplug';
  readonly sources: string;
  readonly tags: string;
  readonly #broker: Mosquitto;
  readonly #watched: RecordingProxy;
  readonly #node: MqttClient;
  readonly #context: WayContext;
  readonly #asset: number;
  /** Claims of each message by its payload. */
  readonly #given = new Map<string, Claim[]>();
  readonly #loop = new Loop(() => this.#publish().then(() => {}));
  /** Sequence number of the next message; a birth certificate has 0. */
  #seq = 0;

  private constructor(
    broker: Mosquitto,
    watched: RecordingProxy,
    port: number,
    node: MqttClient,
    asset: number,
    context: WayContext,
  ) {
    this.#broker = broker;
    this.#watched = watched;
    this.#node = node;
    this.#asset = asset;
    this.#context = context;
    this.sources = `  cells: { sparkplug: "mqtt://127.0.0.1:${port}", group: ${GROUP}, qos: 1 }\n`;
    const values = KEYS.map((key) => `${key}: { unit: 12, from: cells, metric: ${NODE}/${key} }`);
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
    node.on('message', () => {
      // The one command that a subscriber sends here is the request for a birth certificate.
      this.#seq = 0;
      void this.#publish();
    });
    node.on('error', () => {});
  }

  static async open(asset: number, context: WayContext): Promise<SparkplugWay> {
    const broker = await Mosquitto.make();
    await broker.start('max_inflight_messages 0');
    const watched = new RecordingProxy(broker.port);
    const port = await watched.start();
    const node = await connectAsync(`mqtt://127.0.0.1:${broker.port}`, { keepalive: 0 });
    const way = new SparkplugWay(broker, watched, port, node, asset, context);
    await node.subscribeAsync(`spBv1.0/${GROUP}/NCMD/${NODE}`, { qos: 1 });
    return way;
  }

  produce(perSecond: number): void {
    this.#loop.start((1000 * KEYS.length) / perSecond);
  }

  /** Publishes as fast as the broker confirms. */
  async burst(count: number): Promise<void> {
    for (let left = count; left > 0; left -= 100) await Promise.all(Array.from({ length: 100 }, () => this.#publish()));
  }

  async rest(): Promise<void> {
    if (!this.#loop.isRunning) return;
    await this.#loop.end();
    const { confirmed } = this.#watched;
    // The broker keeps the order, so once the latest message is confirmed, all earlier ones are too.
    const latest = await this.#publish();
    for (const end = performance.now() + CONFIRMED_WITHIN_MS; !confirmed.has(latest); await pause(100)) {
      if (performance.now() > end) throw new Error('the latest Sparkplug message was never confirmed by the agent');
    }
    for (const [payload, claims] of this.#given) {
      if (confirmed.has(payload)) for (const claim of claims) this.#context.oracle.acknowledge(claim);
    }
    this.#given.clear();
    confirmed.clear();
  }

  async close(): Promise<void> {
    await this.#loop.end();
    this.#node.end(true);
    await this.#watched.stop();
    await this.#broker.dispose();
  }

  /** Publishes the birth certificate or a message after it. Returns the payload as `RecordingProxy` names it. */
  async #publish(): Promise<string> {
    const { oracle, readings } = this.#context;
    const seq = this.#seq++;
    const isBirth = seq === 0;
    const claims = KEYS.map((key) => readings.next(this.name, this.#asset, key, false));
    const metrics = claims.map(({ key, value, timestampMs }, at) => ({
      ...(isBirth ? { name: key } : {}),
      alias: at + 1,
      timestamp: timestampMs,
      type: 'Double',
      value,
    }));
    const encoded = tahu.encodePayload({ timestamp: claims.at(-1)!.timestampMs, seq: seq % 256, metrics });
    const payload = Buffer.from(compressed(encoded, seq));
    const text = payload.toString('latin1');
    for (const claim of claims) oracle.offer(claim);
    this.#given.set(text, claims);
    await this.#node.publishAsync(`spBv1.0/${GROUP}/${isBirth ? 'NBIRTH' : 'NDATA'}/${NODE}`, payload, { qos: 1 });
    return text;
  }
}

/** Returns every second payload unchanged, and the others compressed as by Eclipse Tahu. */
function compressed(encoded: Uint8Array, seq: number): Uint8Array {
  if (seq % 2 === 0) return encoded;
  const isGzip = seq % 4 === 1;
  return tahu.encodePayload({
    uuid: 'SPBV1.0_COMPRESSED',
    body: isGzip ? gzipSync(encoded) : deflateSync(encoded),
    metrics: [{ name: 'algorithm', type: 'String', value: isGzip ? 'GZIP' : 'DEFLATE' }],
  });
}
