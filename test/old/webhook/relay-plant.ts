import { join } from 'node:path';
import { readStoppedInbox } from '../../../src/control/stopped-inbox.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { NatsServers } from '../../e2e/harness/nats-servers.ts';
import { wholeLines } from '../../whole-lines.ts';

export const SECRET = 'only-platform-and-agents-know-it';
export const SIGNATURE = 'X-Hub-Signature-Sha256';

/** Agent settings: role (publisher or subscriber), user whose events it receives, and start options. */
export interface RelayAgent {
  env: Record<string, string>;
  asset: number;
  platform?: Sandbox;
  /** Reaction to thresholds that records their values. */
  reactions?: string;
  environment?(agent: AgentProcess): NodeJS.ProcessEnv;
}

/**
 * Agent that the platform reaches, a broker, and gateways that receive its events from the broker. Bodies are signed
 * as on the platform; reaction runs are counted at the gateways.
 */
export class RelayPlant {
  readonly sandbox: Sandbox;
  readonly #sandboxes: Sandbox[] = [];
  readonly #agents: AgentProcess[] = [];
  mosquitto: Mosquitto | undefined;
  nats: NatsServers | undefined;

  private constructor(sandbox: Sandbox) {
    this.sandbox = sandbox;
    this.#sandboxes.push(sandbox);
  }

  static async start(): Promise<RelayPlant> {
    const sandbox = new Sandbox();
    await sandbox.start();
    return new RelayPlant(sandbox);
  }

  async dispose(): Promise<void> {
    await Promise.allSettled(this.#agents.map((agent) => agent.dispose()));
    await this.mosquitto?.dispose();
    await this.nats?.dispose();
    await Promise.allSettled(this.#sandboxes.map((sandbox) => sandbox.stop()));
  }

  /** Separate platform, which shows the requests of this agent. */
  async platform(): Promise<Sandbox> {
    const sandbox = new Sandbox();
    this.#sandboxes.push(sandbox);
    await sandbox.start();
    return sandbox;
  }

  /** Mosquitto configuration, or nothing for NATS. Returns the source in tags.yaml and the topic. */
  async broker(kind: 'mqtt' | 'nats', configuration = ''): Promise<{ source: string; topic: string }> {
    if (kind === 'mqtt') {
      this.mosquitto = await Mosquitto.make();
      this.mosquitto.moveTime(0);
      await this.mosquitto.start(configuration);
      return { source: `mqtt: "mqtt://127.0.0.1:${this.mosquitto.port}"`, topic: 'platform/events' };
    }
    this.nats = await NatsServers.make();
    await this.nats.start();
    await (await this.nats.manager()).streams.add({ name: 'EVENTS', subjects: ['platform.events'] });
    return { source: `nats: "${this.nats.url}", ack_wait: 1s`, topic: 'platform.events' };
  }

  /** Starts an agent that is connected to its broker. */
  async agent(source: string, { env, asset, platform = this.sandbox, ...more }: RelayAgent): Promise<AgentProcess> {
    const agent = new AgentProcess(platform.url);
    this.#agents.push(agent);
    const note = `do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${join(agent.folder, 'ran')}'] }]`;
    const reactions = more.reactions ?? 'on: threshold_reached';
    agent.write(platform.url, {
      env: { WEBHOOK_SECRET: SECRET, ...env },
      tags: `sources: { broker: { ${source} } }\ntags:\n  T: { asset: ${asset}, values: { flow: {} } }\n`,
      reactions: `reactions:\n  - { name: note, ${reactions}, ${note} }\n`,
    });
    await agent.start(more.environment?.(agent));
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    return agent;
  }

  /** An MQTT subscription receives messages from its start only: waits until each gateway has run a reaction. */
  async openWay(relay: AgentProcess, gateways: readonly AgentProcess[], asset = 881): Promise<void> {
    for (const gateway of gateways) {
      await gateway.until(async () => {
        await deliver(relay, bodyOf(asset, 0));
        return ranAt(gateway).length > 0;
      }, 'the relay path is ready');
    }
  }
}

/** In the platform's format. */
export function bodyOf(asset: number, value: number, occurredAtMs = Date.now()): string {
  const occurred_at = new Date(occurredAtMs).toISOString();
  const content = { asset: { id: asset }, threshold: { id: 1, type: 'high' }, data: { key: 'flow', value } };
  return JSON.stringify({ event_type: 'threshold_reached', occurred_at, content });
}

/** Delivers an event as the platform does: signed, with a 204 response. */
export async function deliver(relay: AgentProcess, body: string, signature = signatureOf(body)): Promise<void> {
  const headers = { 'Content-Type': 'application/json', [SIGNATURE]: signature };
  const { status, text } = await relay.call(relay.webhook, '/webhook', { method: 'POST', headers, body });
  if (status !== 204) throw new Error(`the relay answered ${status}: ${text}`);
}

const signatureOf = (body: string) => sign(Buffer.from(body), SECRET);

/** Values of the reaction runs, one per line. */
export const ranAt = (agent: AgentProcess): number[] => wholeLines(join(agent.folder, 'ran')).map(Number);

export const relayedBy = (relay: AgentProcess) => relay.metric('tagferry_events_relayed_total');

/** Numbers of events with incomplete reactions in a stopped gateway's inbox. */
export async function unfinishedAt(agent: AgentProcess): Promise<number[]> {
  const events = await readStoppedInbox(agent.state, async (inbox) => {
    const listed = await inbox.list({ limit: 1_000 });
    return Promise.all(listed.map(async ({ id }) => (await inbox.show(id))!));
  });
  return events.filter(({ state }) => state !== 'done').map(({ payload }) => JSON.parse(payload).content.data.value);
}
