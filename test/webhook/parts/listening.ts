import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { systemClock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import type { Logger } from '../../../src/base/logger.ts';
import type { CatchUpInbox } from '../../../src/webhook/catch-up.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { type ListenerOptions, type ListenerParts, WebhookListener } from '../../../src/webhook/listener.ts';
import { sign } from '../../../src/webhook/signature.ts';

export const SECRET = 'the-webhook-secret-of-the-test';

/** Everything that was logged, as one text. */
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

/** A listener over a real inbox in a real file. */
export class Listening {
  readonly folder = mkdtempSync(join(tmpdir(), 'listener-'));
  readonly database = openDatabase(join(this.folder, 'inbox.db'));
  readonly inbox = Inbox.open(this.database, systemClock, 'boot');
  readonly logged = new LogCapture();
  readonly received: string[] = [];
  readonly rejected: string[] = [];
  readonly batches: number[] = [];
  secrets: string[] = [SECRET];
  listener: WebhookListener | undefined;
  /** Stands between the listener and the inbox: faults and delays. */
  before: () => Promise<void> | void = () => {};

  async start(
    options: Partial<ListenerOptions> = {},
    parts: Partial<ListenerParts> = {},
    signal?: AbortSignal,
  ): Promise<this> {
    this.listener = new WebhookListener(
      { listen: { host: '127.0.0.1', port: 0 }, path: '/webhook', acceptSha1: false, ...options },
      {
        insertMany: async (events) => {
          this.batches.push(events.length);
          await this.before();
          return this.inbox.insertMany(events);
        },
        secrets: () => this.secrets,
        clock: systemClock,
        log: this.logged.log,
        received: (eventType) => this.received.push(eventType),
        rejected: (reason) => this.rejected.push(reason),
        ...parts,
      },
    );
    await this.listener.start(signal);
    return this;
  }

  get port(): number {
    return (this.listener!.address() as { port: number }).port;
  }

  url(path = '/webhook', scheme = 'http'): string {
    return `${scheme}://127.0.0.1:${this.port}${path}`;
  }

  /** Posts a body, signed unless told otherwise. */
  post(body: string | Uint8Array, headers?: Record<string, string>): Promise<Response> {
    const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body;
    return fetch(this.url(), {
      method: 'POST',
      headers: headers ?? { 'X-Hub-Signature-Sha256': sign(bytes, SECRET), 'Content-Type': 'application/json' },
      body: Buffer.from(bytes),
    });
  }

  async stop(): Promise<void> {
    await this.listener?.stop();
    this.database.close();
    rmSync(this.folder, { recursive: true });
  }
}

/** The inbox as the main thread reaches it. */
export function asyncInbox(inbox: Inbox): CatchUpInbox {
  return {
    insertMany: async (events) => inbox.insertMany(events),
    seen: async (digests) => inbox.seen(digests),
    asked: async (deliveries) => inbox.asked(deliveries),
    markAsked: async (deliveries) => inbox.markAsked(deliveries),
    note: async (name) => inbox.note(name),
    setNote: async (name, value) => inbox.setNote(name, value),
  };
}

let serial = 0;
/** A valid event, each another. */
export function anEvent(more: object = {}): string {
  return JSON.stringify({
    event_type: 'threshold_reached',
    occurred_at: '2026-11-21T00:00:00Z',
    content: { asset: { id: 881 }, data: { value: ++serial, key: 'flow' }, threshold: { type: 'high' } },
    ...more,
  });
}

/** Waits for a condition, never for a time. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
