import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import type { Logger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import type { SessionCredentials } from '../../../src/platform/grants.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { Session } from '../../../src/platform/session/session.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { TokenServer } from './token-server.ts';
import { untilValid } from './until-valid.ts';

/** Session and client with a strict platform on loopback, all with the same manual clock. */
export class SessionBench {
  readonly clock = new ManualClock();
  readonly server = new TokenServer(this.clock);
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-session-'));
  readonly lines: Record<string, unknown>[] = [];
  readonly renewals: string[] = [];
  /** Number of reported tokens that another client revoked. */
  revokedElsewhere = 0;
  credentials: SessionCredentials = {
    client: { clientId: 'client-id', clientSecret: 'client secret+ü:%', clientAuth: 'basic' },
    user: { username: 'gateway@example.com', password: this.server.password },
  };
  readonly log: Logger = pino(
    { level: 'trace' },
    { write: (line: string) => void this.lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  readonly boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 8 }),
    clock: this.clock,
    userAgent: 'tagferry/test',
  });
  /** Number of requests in progress. */
  #inFlight = 0;
  readonly #sessions: Session[] = [];
  readonly #abort = new AbortController();
  session!: Session;
  client!: PlatformClient;

  /** Starts the server and creates a session that is not started. */
  async open(): Promise<this> {
    const send = this.boundary.send.bind(this.boundary);
    this.boundary.send = (request) => {
      this.#inFlight++;
      return send(request).finally(() => this.#inFlight--);
    };
    await this.server.start();
    this.renewSession();
    return this;
  }

  /** Creates a new session on the same state folder, as after a restart. */
  renewSession(): void {
    const { clock, boundary, log } = this;
    this.session = this.#makeSession();
    this.#sessions.push(this.session);
    this.client = new PlatformClient({ boundary, baseUrl: this.server.url, tokens: this.session, clock, log });
  }

  #makeSession(): Session {
    const { clock, boundary, log } = this;
    return new Session({
      redactor: new Redactor(),
      boundary,
      baseUrl: this.server.url,
      credentials: () => this.credentials,
      file: new SessionFile(this.folder),
      clock,
      log,
      onRenewal: (grant) => this.renewals.push(grant),
      onRevokedElsewhere: () => this.revokedElsewhere++,
    });
  }

  /** Starts the session and waits for its first token. */
  async start(): Promise<void> {
    await this.session.start(this.#abort.signal);
    await untilValid(this.session);
    await this.quiet();
  }

  events(): string[] {
    return this.lines.map((line) => String(line.event));
  }

  /** Waits until no request and no write is in progress. */
  async quiet(): Promise<void> {
    let calm = 0;
    await until(() => {
      calm = this.#inFlight === 0 && this.session.snapshot().state !== 'renewing' ? calm + 1 : 0;
      return calm > 8;
    });
  }

  /** Advances the clock in steps, and waits after each one until no request is in progress. */
  async pass(ms: number, stepMs = 5_000, each: () => Promise<unknown> = async () => {}): Promise<void> {
    for (let passed = 0; passed < ms; passed += stepMs) {
      await this.clock.advance(Math.min(stepMs, ms - passed));
      await this.quiet();
      await each();
    }
  }

  async close(): Promise<void> {
    this.#abort.abort();
    await this.boundary.close();
    // Waits for pending writes.
    for (const session of this.#sessions) await session.stop();
    await this.server.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Waits for a condition, checked in each turn of the event loop. */
export async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; !condition(); turn++) {
    if (turn > 200_000) throw new Error('waited too long');
    await new Promise((resolve) => (turn % 64 === 63 ? setTimeout(resolve, 1) : setImmediate(resolve)));
  }
}
