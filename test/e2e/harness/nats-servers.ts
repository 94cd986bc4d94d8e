import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type JetStreamManager, jetstreamManager } from '@nats-io/jetstream';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { freePort } from '../../../src/base/port-claim.ts';

const PROGRAM = 'nats-server';
const PATIENCE_MS = 60_000;

/** One or several nats-server processes from Debian's package, with JetStream and a folder each. */
export class NatsServers {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-nats-'));
  readonly ports: readonly number[];
  readonly #routes: readonly number[];
  readonly #children: (ChildProcess | undefined)[] = [];
  readonly #connections: NatsConnection[] = [];

  private constructor(ports: readonly number[], routes: readonly number[]) {
    this.ports = ports;
    this.#routes = routes;
  }

  /** Reserves ports. `start` starts the servers. */
  static async make(count = 1): Promise<NatsServers> {
    const ports: number[] = [];
    while (ports.length < 2 * count) {
      const port = await freePort();
      if (!ports.includes(port)) ports.push(port);
    }
    return new NatsServers(ports.slice(0, count), ports.slice(count));
  }

  get url(): string {
    return this.ports.map((port) => `nats://127.0.0.1:${port}`).join(',');
  }

  /** Resolves when JetStream responds on all servers. `more`: additional configuration. */
  async start(more = ''): Promise<void> {
    for (const at of this.ports.keys()) this.startOne(at, more);
    await this.untilReady();
  }

  startOne(at: number, more = ''): void {
    const file = join(this.folder, `n${at}.conf`);
    const routes = this.#routes.map((port) => `nats-route://127.0.0.1:${port}`).join(', ');
    const cluster =
      this.ports.length === 1
        ? ''
        : `cluster { name: site, listen: "127.0.0.1:${this.#routes[at]}", routes: [${routes}] }\n`;
    writeFileSync(
      file,
      `server_name: n${at}\nlisten: "127.0.0.1:${this.ports[at]}"\nlog_file: "${join(this.folder, `n${at}.log`)}"\n` +
        `jetstream { store_dir: "${join(this.folder, `n${at}`)}", max_file_store: 1GB, max_memory_store: 64MB }\n${cluster}${more}\n`,
    );
    const child = spawn(PROGRAM, ['-c', file], { stdio: 'ignore' });
    child.once('error', () => {});
    this.#children[at] = child;
  }

  /** Returns a client for the test, which is closed with the servers. */
  async connection(options: { user?: string; pass?: string } = {}): Promise<NatsConnection> {
    const servers = this.ports.map((port) => `127.0.0.1:${port}`);
    // Frequent pings, so that the client leaves a stopped node soon.
    const patience = { maxReconnectAttempts: -1, reconnectTimeWait: 100, pingInterval: 1_000, maxPingOut: 2 };
    const connection = await connect({ servers, ...patience, ...options });
    this.#connections.push(connection);
    return connection;
  }

  async manager(): Promise<JetStreamManager> {
    return jetstreamManager(await this.connection());
  }

  async untilReady(): Promise<void> {
    const servers = this.ports.map((port) => `127.0.0.1:${port}`);
    for (const deadline = Date.now() + PATIENCE_MS; ; ) {
      try {
        const connection = await connect({ servers, timeout: 1_000 });
        const manager = await jetstreamManager(connection);
        // A stream with one replica per server proves that the cluster is complete.
        await manager.streams.add({ name: 'READY', subjects: ['ready'], num_replicas: this.ports.length });
        await manager.streams.delete('READY');
        await connection.close();
        return;
      } catch (error) {
        if (Date.now() > deadline) throw new Error(`the servers are not ready\n${this.#logs()}`, { cause: error });
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  async stop(at: number, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#children[at];
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const over = once(child, 'exit');
    child.kill(signal);
    await over;
  }

  /** Sends a signal, for example SIGSTOP and SIGCONT to simulate a hanging server. */
  signal(at: number, signal: NodeJS.Signals): void {
    this.#children[at]?.kill(signal);
  }

  async dispose(): Promise<void> {
    await Promise.allSettled(this.#connections.map((connection) => connection.close()));
    for (const at of this.ports.keys()) {
      this.signal(at, 'SIGCONT');
      await this.stop(at, 'SIGKILL');
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  #logs(): string {
    return this.ports
      .map((_, at) => {
        try {
          return readFileSync(join(this.folder, `n${at}.log`), 'utf8').slice(-1_000);
        } catch {
          return '';
        }
      })
      .join('\n');
  }
}
