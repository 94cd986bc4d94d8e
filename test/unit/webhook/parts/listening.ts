import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { systemClock } from '../../../../src/base/clock.ts';
import { openDatabase } from '../../../../src/base/database.ts';
import type { InboundLimits, InboundServer } from '../../../../src/base/inbound/inbound-server.ts';
import type { Logger } from '../../../../src/base/logger.ts';
import { Arrivals } from '../../../../src/webhook/arrivals.ts';
import type { CatchUpInbox } from '../../../../src/webhook/catch-up.ts';
import { Inbox } from '../../../../src/webhook/inbox.ts';
import {
  type ListenerOptions,
  type ListenerParts,
  type RequestLimits,
  WEBHOOK_LISTENER,
  WebhookListener,
} from '../../../../src/webhook/listener.ts';
import { sign } from '../../../../src/webhook/signature.ts';
import { type InboundPlace, inboundServer, portOf } from '../../doubles/inbound-server.ts';

export const SECRET = 'the-webhook-secret-of-the-test';

/** Log lines as text. */
export class LogCapture {
  text = '';
  readonly log: Logger = pino(
    { level: 'trace' },
    new Writable({
      write: (chunk, _encoding, done) => {
        this.text += chunk;
        done();
      },
    }),
  );
}

interface ListeningOptions
  extends Partial<Pick<ListenerOptions, 'path' | 'acceptSha1' | 'keepsSignatures'>>,
    Pick<InboundPlace, 'address' | 'tls'> {
  limits?: Partial<InboundLimits & RequestLimits>;
}

/** A listener with an inbox on disk. */
export class Listening {
  readonly folder = mkdtempSync(join(tmpdir(), 'listener-'));
  readonly database = openDatabase(join(this.folder, 'inbox.db'));
  readonly inbox = Inbox.open(this.database, systemClock, 'boot');
  readonly logged = new LogCapture();
  readonly received: string[] = [];
  readonly rejected: string[] = [];
  readonly batches: number[] = [];
  secrets: string[] = [SECRET];
  readonly arrivals = new Arrivals({
    insertMany: async (events) => {
      this.batches.push(events.length);
      await this.before();
      return this.inbox.insertMany(events);
    },
    log: this.logged.log,
    received: (eventType) => this.received.push(eventType),
  });
  server: InboundServer | undefined;
  listener: WebhookListener | undefined;
  /** Runs before each insert, for faults and delays. */
  before: () => Promise<void> | void = () => {};

  async start({ address, tls, ...options }: ListeningOptions = {}, parts: Partial<ListenerParts> = {}): Promise<this> {
    const { limits = {} } = options;
    const place = { ...(address ? { address } : {}), tls, limits, clock: parts.clock ?? systemClock };
    this.server = inboundServer(WEBHOOK_LISTENER, { ...place, log: this.logged.log });
    const { server } = this;
    this.listener = new WebhookListener(
      { server, path: '/webhook', acceptSha1: false, ...options },
      {
        arrivals: this.arrivals,
        secrets: () => this.secrets,
        clock: systemClock,
        log: this.logged.log,
        rejected: (reason) => this.rejected.push(reason),
        ...parts,
      },
    );
    await server.start();
    this.listener.start();
    return this;
  }

  get port(): number {
    return portOf(this.server!);
  }

  url(path = '/webhook', scheme = 'http'): string {
    return `${scheme}://127.0.0.1:${this.port}${path}`;
  }

  /** Posts a body, signed by default. */
  post(body: string | Uint8Array, headers?: Record<string, string>): Promise<Response> {
    const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body;
    return fetch(this.url(), {
      method: 'POST',
      headers: headers ?? { 'X-Hub-Signature-Sha256': sign(bytes, SECRET), 'Content-Type': 'application/json' },
      body: Buffer.from(bytes),
    });
  }

  /** Ends the listener. */
  async close(): Promise<void> {
    await this.listener?.stop();
    await this.server?.stop();
  }

  async stop(): Promise<void> {
    await this.close();
    this.database.close();
    rmSync(this.folder, { recursive: true });
  }
}

/** Arrivals of an inbox. */
export function arrivalsOf(inbox: Inbox, log: Logger): Arrivals {
  return new Arrivals({ insertMany: async (events) => inbox.insertMany(events), log });
}

/** The asynchronous interface of the inbox. */
export function asyncInbox(inbox: Inbox): CatchUpInbox {
  return {
    seen: async (digests) => inbox.seen(digests),
    asked: async (deliveries) => inbox.asked(deliveries),
    markAsked: async (deliveries) => inbox.markAsked(deliveries),
    note: async (name) => inbox.note(name),
    setNote: async (name, value) => inbox.setNote(name, value),
  };
}

let serial = 0;
/** A valid event with a new value. */
export function anEvent(more: object = {}): string {
  return JSON.stringify({
    event_type: 'threshold_reached',
    occurred_at: '2026-11-21T00:00:00Z',
    content: { asset: { id: 881 }, data: { value: ++serial, key: 'flow' }, threshold: { type: 'high' } },
    ...more,
  });
}

/** Waits for a condition. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
