import type { SourceReport } from '../../../src/sources/source-report.ts';
import { OpcuaServer } from '../../sources/opcua/opcua-server.ts';
import type { ProvenGateway } from '../proven-gateway.ts';
import { Loop, pause, type Way, type WayContext } from './way.ts';

const KEY = 'n';
/** Ten a second for as long as anybody lets it. */
const ENDLESSLY = 1_000_000;
/** More than starts take from what is owed. */
const BEGUN = 30;
const BEGUN_WITHIN_MS = 120_000;
const SETTLED_MS = 3_000;
const SETTLED_WITHIN_MS = 120_000;

/**
 * A server of node-opcua with a node that counts on, and writes down each number first. The obligation is what the agent shows to have
 * stored, but for the number with which a subscription begins anew after a start: that was said before.
 */
export class OpcuaWay implements Way {
  readonly name = 'opcua';
  readonly sources: string;
  readonly tags: string;
  readonly #server: OpcuaServer;
  readonly #agent: ProvenGateway;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #loop = new Loop(() => this.#look());
  #earlier = 0;
  #stored = 0;

  private constructor(server: OpcuaServer, agent: ProvenGateway, asset: number, context: WayContext) {
    this.#server = server;
    this.#agent = agent;
    this.#asset = asset;
    this.#context = context;
    this.sources = `  cell: { opcua: "${server.url}", every: 50ms, security: None }\n`;
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${KEY}: { unit: 1, from: cell, node: "ns=1;s=Line1.Count", queue: 5000 } } }\n`;
  }

  static async open(agent: ProvenGateway, asset: number, context: WayContext): Promise<OpcuaWay> {
    const server = new OpcuaServer();
    await server.start();
    return new OpcuaWay(server, agent, asset, context);
  }

  /** It answers nothing, and its connections stay. */
  hang(isHanging: boolean): void {
    this.#server.signal(isHanging ? 'SIGSTOP' : 'SIGCONT');
  }

  produce(): void {
    this.#server.tell({ count: ENDLESSLY });
    this.#loop.start(200);
  }

  /** The program that reads it takes a while to load: resolves when values come. */
  async begun(): Promise<void> {
    for (const end = performance.now() + BEGUN_WITHIN_MS; this.#stored < BEGUN; await pause(100)) {
      if (performance.now() > end) throw new Error('the server of OPC UA was never read');
    }
  }

  /** It counts no further, and what the agent shows stands still: all that there is to judge. */
  async rest(): Promise<void> {
    if (!this.#loop.isRunning) return;
    this.#server.tell({ count: 0 });
    const end = performance.now() + SETTLED_WITHIN_MS;
    for (let before = -1; before !== this.#stored && performance.now() < end; ) {
      before = this.#stored;
      await pause(SETTLED_MS);
    }
    await this.#loop.end();
    const owed = Math.max(0, this.#earlier + this.#stored - this.#agent.launches);
    const said = this.#server.said().map(({ value }) => value);
    this.#context.oracle.counted(this.name, this.#asset, KEY, owed, [0, ...said]);
  }

  async close(): Promise<void> {
    await this.#loop.end();
    this.hang(false);
    await this.#server.dispose();
  }

  async #look(): Promise<void> {
    const status = await Promise.race([this.#agent.status().catch(() => undefined), pause(1_000)]);
    const report = (status?.sources as SourceReport[] | undefined)?.find(({ name }) => name === 'cell');
    if (report === undefined) return;
    // It counts from its start on.
    if (report.stored < this.#stored) this.#earlier += this.#stored;
    this.#stored = report.stored;
  }
}
