import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { freePort } from '../../../src/base/port-claim.ts';
import type { AgentProcess } from './agent-process.ts';
import { runVerb } from './verb.ts';

/** Listener of the agent, and the secret of its webhook. */
export interface Webhook {
  url: string;
  secret: string;
}

/** Settings of a webhook that the platform can reach. */
export async function webhookSettings(): Promise<{ WEBHOOK_LISTEN: string; WEBHOOK_URL: string }> {
  const listen = `127.0.0.1:${await freePort()}`;
  return { WEBHOOK_LISTEN: listen, WEBHOOK_URL: `http://${listen}/hook` };
}

/** Content of a `threshold_reached` event. `number` is its value; each instrumentation is an object of its own. */
export function thresholdContent(number: number, instrumentation = 4711): Record<string, unknown> {
  const unit = { code: 'cubic_meter_per_hour', symbol: 'm³/h' };
  return {
    asset: { id: 881, href: 'https://platform.example/v1/assets/881' },
    instrumentation: { id: instrumentation, href: 'https://platform.example/v1/instrumentations/4711' },
    data: { value: number, key: 'flow', timestamp: '2026-11-21T00:00:00Z', unit },
    threshold: {
      type: 'high',
      name: 'High',
      value: 20,
      unit,
      thresholdable_type: 'Instrumentation',
      value_in_threshold_unit: null,
    },
  };
}

/** Body of a delivery. */
export function eventBody(content: Record<string, unknown>, occurredAtMs = Date.now()): string {
  const occurred_at = new Date(occurredAtMs).toISOString();
  return JSON.stringify({ event_type: 'threshold_reached', occurred_at, content });
}

export function signatureOf(body: string, secret: string): string {
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
}

/** Delivers a signed event in the same way as the platform. Returns the status, or 0 if there was no response. */
export async function deliver(
  { url, secret }: Webhook,
  body: string,
  headers: Record<string, string> = { 'X-Hub-Signature-Sha256': signatureOf(body, secret) },
): Promise<number> {
  try {
    return (await fetch(url, { method: 'POST', body, headers })).status;
  } catch {
    return 0;
  }
}

/** Waits until the listener knows the secret. Until then, it responds 503 to every delivery. */
export async function listening(agent: AgentProcess, url: string): Promise<void> {
  const unsigned = () => deliver({ url, secret: '' }, '', {});
  await agent.until(async () => (await unsigned()) === 401, 'the listener knows the secret of the webhook');
}

export interface ListedEvent {
  id: number;
  event_type: string;
  occurred_at: string;
  state: string;
  unrecognised: boolean;
}

/** Inbox of a running or stopped agent, newest event first. */
export async function listEvents(agent: AgentProcess): Promise<ListedEvent[]> {
  const { status, stdout, stderr } = await runVerb(agent, 'events', 'ls', '--json', '--limit', '5000');
  if (status !== 0) throw new Error(`events ls exited with ${status}: ${stderr}`);
  return JSON.parse(stdout) as ListedEvent[];
}

/** HTTP receiver of `post` actions. */
export class Receiver {
  /** Received requests, in order. */
  readonly requests: { path: string; headers: IncomingMessage['headers']; body: string }[] = [];
  /** Returns the status of a response; 0 means no response. */
  respond: (path: string) => number = () => 204;
  /** Number of requests without a response. */
  waiting = 0;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const body = await text(request).catch(() => undefined);
      if (body === undefined) return;
      this.requests.push({ path: request.url!, headers: request.headers, body });
      const status = this.respond(request.url!);
      if (status !== 0) return void response.writeHead(status).end();
      this.waiting++;
      response.once('close', () => this.waiting--);
    });
  }

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    receiver.#server.listen(0, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Values of the received events. */
  numbers(path = '/'): number[] {
    const own = this.requests.filter((one) => one.path === path);
    return own.map(({ body }) => (JSON.parse(body) as { content: { data: { value: number } } }).content.data.value);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
