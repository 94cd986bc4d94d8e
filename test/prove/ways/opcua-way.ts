import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { OpcuaServer } from '../../e2e/harness/opcua-server.ts';
import { pause, type Way, type WayContext } from './way.ts';

const KEY = 'n';
/** A count that a run never reaches. */
const ENDLESSLY = 1_000_000;
const BEGUN_WITHIN_MS = 120_000;
/** Time limit for values that the server still has when counting stops. The reader process is slow to load. */
const DELIVERED_WITHIN_MS = 180_000;

/**
 * A node-opcua server with a counting node that has a history. Every number after the first acknowledged one must be
 * delivered: those that no subscription reports are in the history. The server records each number before it sends it.
 */
export class OpcuaWay implements Way {
  readonly name = 'opcua';
  readonly sources: string;
  readonly tags: string;
  readonly #server: OpcuaServer;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #sandbox: Sandbox;
  #isCounting = false;
  /** Latest number of the previous round. */
  #delivered = 0;

  private constructor(server: OpcuaServer, asset: number, context: WayContext, sandbox: Sandbox) {
    this.#sandbox = sandbox;
    this.#server = server;
    this.#context = context;
    this.#asset = asset;
    this.sources = `  cell: { opcua: "${server.url}", every: 50ms, security: None }\n`;
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${KEY}: { unit: 1, from: cell, node: "ns=1;s=Line1.Count", queue: 5000 } } }\n`;
  }

  static async open(asset: number, context: WayContext, sandbox: Sandbox): Promise<OpcuaWay> {
    const server = new OpcuaServer();
    await server.start();
    return new OpcuaWay(server, asset, context, sandbox);
  }

  /** Suspends the server and leaves its connections open, or resumes it. */
  hang(isHanging: boolean): void {
    this.#server.signal(isHanging ? 'SIGSTOP' : 'SIGCONT');
  }

  produce(): void {
    this.#server.send({ count: ENDLESSLY });
    this.#isCounting = true;
  }

  /** Resolves when values arrive. The reader program takes some time to load. */
  async begun(): Promise<void> {
    await this.#until(
      (acknowledged) => acknowledged.some((one) => one > 0),
      BEGUN_WITHIN_MS,
      'the number was never read',
    );
  }

  /** Stops counting and waits until every number is delivered: by a subscription, or from the history. */
  async rest(): Promise<void> {
    if (!this.#isCounting) return;
    this.#isCounting = false;
    this.#server.send({ count: 0 });
    // Waits for the number that is being emitted.
    await pause(500);
    const emitted = this.#server.emitted().map(({ value }) => value);
    const first = Math.min(...this.#server.acknowledged().filter((one) => one > 0));
    const owed = emitted.filter((one) => one >= first);
    const isOpen = (one: number) => one > this.#delivered;
    await this.#until(
      () => {
        const here = new Set(this.#sandbox.values.list(this.#asset, KEY).map(({ value }) => value));
        return owed.filter(isOpen).every((one) => here.has(one));
      },
      DELIVERED_WITHIN_MS,
      `delivery of the numbers up to ${emitted.at(-1)}`,
    );
    this.#delivered = emitted.at(-1) ?? 0;
    this.#context.oracle.counted(this.name, this.#asset, KEY, new Set(owed), [0, ...emitted]);
  }

  async close(): Promise<void> {
    this.hang(false);
    await this.#server.dispose();
  }

  async #until(holds: (acknowledged: number[]) => boolean, withinMs: number, what: string): Promise<void> {
    for (const end = performance.now() + withinMs; !holds(this.#server.acknowledged()); await pause(200)) {
      if (performance.now() > end) throw new Error(`OPC UA server: timeout waiting for ${what}`);
    }
  }
}
