import { type JetStreamClient, type JetStreamManager, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { NatsServers } from '../../e2e/harness/nats-servers.ts';
import type { FarEnd } from '../far-end.ts';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const KEYS = ['a', 'b'];
const OVERSIZED_BYTES = 32_000_000;
/** The default of the server would reject the oversized message. */
const MAX_PAYLOAD = 'max_payload: 64MB';
const [STREAM, DURABLE] = ['PLANT', 'gateway'];
/** Longer than a fault of the disk, after which the server would redeliver messages that the agent already holds. */
const ACK_WAIT = '15s';
/** Time limit for messages that the stream still has when the producer stops, including their `ack_wait` after a crash. */
const ACKNOWLEDGED_WITHIN_MS = 180_000;

/**
 * A plant that publishes to a stream of Debian's nats-server. All messages up to the acknowledgement floor of the
 * consumer must be delivered.
 */
export class NatsWay implements Way {
  readonly name = 'nats';
  readonly sources: string;
  readonly tags: string;
  readonly #servers: NatsServers;
  readonly #context: WayContext;
  readonly #farEnd: FarEnd;
  readonly #asset: number;
  /** Claims by stream sequence. A killed server may assign a sequence again. */
  readonly #kept = new Map<number, Claim>();
  readonly #loop = new Loop(() => this.#publish());
  #stream!: JetStreamClient;
  #manager!: JetStreamManager;
  #turn = 0;
  #lastSeq = 0;
  /** Latest consumer information of the server. */
  #consumerInfo = '';

  private constructor(servers: NatsServers, asset: number, context: WayContext, farEnd: FarEnd) {
    this.#farEnd = farEnd;
    this.#servers = servers;
    this.#context = context;
    this.#asset = asset;
    this.sources = `  line: { nats: "${servers.url}", stream: ${STREAM}, durable: ${DURABLE}, ack_wait: ${ACK_WAIT} }\n`;
    const values = KEYS.map(
      (key) => `${key}: { unit: 12, from: line, subject: site.${key}, at: /v, time: /t, status: /q }`,
    );
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
  }

  static async open(asset: number, context: WayContext, farEnd: FarEnd): Promise<NatsWay> {
    const servers = await NatsServers.make();
    const way = new NatsWay(servers, asset, context, farEnd);
    await servers.start(MAX_PAYLOAD);
    const connection = await servers.connection();
    way.#stream = jetstream(connection, { timeout: 1_000 });
    way.#manager = await jetstreamManager(connection, { timeout: 1_000 });
    await way.#manager.streams.add({ name: STREAM, subjects: ['site.>'] });
    return way;
  }

  /** Starts the server. It redelivers messages whose acknowledgement it had not persisted. */
  async startServer(): Promise<void> {
    await this.#servers.start(MAX_PAYLOAD);
    const info = await this.#manager.consumers.info(STREAM, DURABLE).catch(() => undefined);
    this.#farEnd.redelivered(Math.max(0, this.#lastSeq - (info?.ack_floor.stream_seq ?? 0)));
  }

  async killServer(): Promise<void> {
    await this.#servers.stop(0, 'SIGKILL');
  }

  produce(perSecond: number): void {
    this.#loop.start(1000 / perSecond);
  }

  /** Publishes as fast as the stream confirms. */
  async burst(count: number): Promise<void> {
    for (let left = count; left > 0; left -= 100) await Promise.all(Array.from({ length: 100 }, () => this.#publish()));
  }

  /** Publishes a message that no value can be read from and that exceeds what the agent accepts. */
  async publishOversized(): Promise<void> {
    await this.#stream.publish(`site.${KEYS[0]}`, Buffer.alloc(OVERSIZED_BYTES, 'x'), { timeout: 30_000 });
  }

  async rest(): Promise<void> {
    if (!this.#loop.isRunning) return;
    await this.#loop.end();
    for (const end = performance.now() + ACKNOWLEDGED_WITHIN_MS; !(await this.#isDrained()); await pause(200)) {
      if (performance.now() > end)
        throw new Error(`the agent did not acknowledge the whole stream: ${this.#consumerInfo}`);
    }
  }

  async close(): Promise<void> {
    await this.#loop.end();
    await this.#servers.dispose();
  }

  /** Acknowledges claims up to the floor. Returns whether the server has no messages left. */
  async #isDrained(): Promise<boolean> {
    const info = await this.#manager.consumers.info(STREAM, DURABLE).catch((error: unknown) => String(error));
    this.#consumerInfo = JSON.stringify(info);
    if (typeof info === 'string') return false;
    for (const [seq, claim] of this.#kept) {
      if (seq > info.ack_floor.stream_seq) continue;
      this.#context.oracle.acknowledge(claim);
      this.#kept.delete(seq);
    }
    return info.num_pending === 0 && info.num_ack_pending === 0;
  }

  async #publish(): Promise<void> {
    const key = KEYS[this.#turn++ % KEYS.length]!;
    const claim = this.#context.readings.next(this.name, this.#asset, key, true);
    const { value, timestampMs, status } = claim;
    const quality = status === undefined ? '' : `,"q":"${status}"`;
    this.#context.oracle.offer(claim);
    // The stream may or may not contain an unconfirmed message.
    const kept = await this.#stream
      .publish(`site.${key}`, `{"v":${numberText(value)},"t":${timestampMs}${quality}}`)
      .catch(() => undefined);
    if (kept === undefined) return;
    this.#lastSeq = kept.seq;
    this.#kept.set(kept.seq, claim);
  }
}
