import type { JetStreamManager } from '@nats-io/jetstream';
import { jetstream } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import pRetry from 'p-retry';
import { expect } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from './agent-process.ts';
import { NOTHING_WRONG, Published, TOPICS } from './mqtt-values.ts';
import { NatsServers } from './nats-servers.ts';

const ENV = { COMMIT_INTERVAL: '500ms', POST_INTERVAL: '100ms' };
const START_MS = 1_795_219_200_000;
const ASSET = 881;
/** Maximum number of unacknowledged messages per agent. */
const WINDOW = 2_000;
/** Time limit for a stream with a new leader or with redeliveries. */
const LATE_MS = 120_000;

/**
 * Debian's nats-server, the agent as a process, and a plant that publishes to a stream. Values are counted on the
 * platform by series and number.
 */
export class NatsPlant {
  readonly sandbox: Sandbox;
  readonly servers: NatsServers;
  readonly manager: JetStreamManager;
  readonly published = new Published();
  readonly #agents: AgentProcess[] = [];
  /** Publishing in progress, which ends with its test. */
  readonly #works: Promise<unknown>[] = [];
  #connection: NatsConnection | undefined;

  private constructor(sandbox: Sandbox, servers: NatsServers, manager: JetStreamManager) {
    this.sandbox = sandbox;
    this.servers = servers;
    this.manager = manager;
  }

  /**
   * Creates the stream PLANT with these subjects on the given number of servers. `more`: additional server
   * configuration.
   */
  static async start({ nodes = 1, subjects = ['site.>'], more = '' } = {}): Promise<NatsPlant> {
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    const servers = await NatsServers.make(nodes);
    try {
      await servers.start(more);
      const manager = await servers.manager();
      await manager.streams.add({ name: 'PLANT', subjects, num_replicas: nodes });
      return new NatsPlant(sandbox, servers, manager);
    } catch (error) {
      await servers.dispose();
      await sandbox.stop();
      throw error;
    }
  }

  async dispose(): Promise<void> {
    await Promise.allSettled(this.#agents.map((agent) => agent.dispose()));
    await this.servers.dispose();
    await Promise.allSettled(this.#works);
    await this.sandbox.stop();
  }

  tagsOf(source: string, { subject = (topic: number) => `site.t${topic}`, time = ', time: /t' } = {}): string {
    const values = Array.from(
      { length: TOPICS },
      (_, topic) => `      k${topic}: { from: line, subject: ${subject(topic)}, at: /v${time} }\n`,
    );
    return (
      `sources:\n  line: { nats: "${this.servers.url}", ${source} }\n` +
      `tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}`
    );
  }

  async agentOf(tags: string, environment: NodeJS.ProcessEnv = {}): Promise<AgentProcess> {
    const agent = new AgentProcess(this.sandbox.url, { tags, env: ENV });
    this.#agents.push(agent);
    await agent.start(environment);
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the server is connected');
    return agent;
  }

  /** Publishes a number of values to the subjects in turn, each confirmed by the stream; waits for stopped nodes. */
  publish(count: number): Promise<void> {
    const work = this.#publish(count);
    work.catch(() => {});
    this.#works.push(work);
    return work;
  }

  /** Numbers of two subjects, with many per millisecond. */
  async burst(count: number): Promise<void> {
    this.#connection ??= await this.servers.connection();
    const stream = jetstream(this.#connection, { timeout: 30_000 });
    const publishOne = () => {
      const topic = this.published.count % 2;
      const number = this.published.next(topic);
      return stream.publish(`site.t${topic}`, `{"v":${number}}`, { msgID: number });
    };
    for (let left = count; left > 0; left -= 100) {
      await Promise.all(Array.from({ length: Math.min(100, left) }, publishOne));
    }
  }

  async #publish(count: number): Promise<void> {
    this.#connection ??= await this.servers.connection();
    const stream = jetstream(this.#connection, { timeout: 2_000 });
    for (let n = 0; n < count; n++) {
      const topic = this.published.count % TOPICS;
      const number = this.published.next(topic);
      const text = `{"v":${number},"t":${START_MS + Number(number)}}`;
      // With the same id, the stream stores a message once, even if its confirmation was lost.
      await pRetry(() => stream.publish(`site.t${topic}`, text, { msgID: number }), {
        retries: 200,
        minTimeout: 100,
        factor: 1,
      });
    }
  }

  /** The consumer has no pending and no unacknowledged messages. */
  async untilTaken(agent: AgentProcess, durable: string): Promise<void> {
    const taken = async () => {
      const info = await this.manager.consumers.info('PLANT', durable).catch(() => undefined);
      return info !== undefined && info.num_pending === 0 && info.num_ack_pending === 0;
    };
    await agent.until(taken, 'all are acknowledged', LATE_MS);
  }

  /** Every published value is on the platform exactly once, and no other value. */
  async untilArrived(agent: AgentProcess): Promise<void> {
    await agent.until(
      () => this.published.compare(this.sandbox).missing.length === 0,
      'all values have arrived',
      LATE_MS,
    );
    expect(this.published.compare(this.sandbox)).toEqual(NOTHING_WRONG);
  }

  /**
   * Restores the platform and waits for the backlogs of all agents: every value arrives, with no more duplicates than
   * the consumer had unacknowledged messages. The platform was unavailable throughout, so that no post was repeated.
   * Returns the number of duplicates.
   */
  async expectBounded(agents: readonly AgentProcess[]): Promise<number> {
    await this.sandbox.goOnline();
    await this.untilArrived(agents[0]!);
    for (const agent of agents)
      await agent.until(
        async () => (await agent.metric('tagferry_buffer_values')) === 0,
        'the buffer is empty',
        LATE_MS,
      );
    expect(this.published.compare(this.sandbox)).toEqual(NOTHING_WRONG);
    const { received, stored: kept } = this.sandbox.values.counts(ASSET);
    expect(received - kept).toBeLessThanOrEqual(WINDOW);
    return received - kept;
  }

  /** Values of a topic on the platform, in order of arrival. */
  stored(topic: number): number[] {
    return this.sandbox.values.list(ASSET, `k${topic}`).map(({ value }) => value);
  }
}

/** Values that an agent has or had on disk. */
export const taken = (agent: AgentProcess) => agent.metric('tagferry_values_ingested_total');

/** Messages that the server marked as redelivered when an agent received them. */
export async function redeliveries(agents: readonly AgentProcess[]): Promise<number> {
  const each = agents.map((agent) => agent.metric('tagferry_source_redeliveries_taken_total'));
  return (await Promise.all(each)).reduce((sum, one) => sum + one, 0);
}
