import { OpcuaServer } from '../../sources/opcua/opcua-server.ts';
import { pause, type Way, type WayContext } from './way.ts';

const KEY = 'n';
/** Ten a second for as long as anybody lets it. */
const ENDLESSLY = 1_000_000;
const BEGUN_WITHIN_MS = 120_000;
/** For what the server still has when it counts no further: the program that reads it takes its time to load. */
const LAST_WORD_MS = 180_000;

/**
 * A server of node-opcua with a node that counts on, and writes down each number first. The obligation is that a message was acknowledged by
 * its sequence number: each number that it brought.
 */
export class OpcuaWay implements Way {
  readonly name = 'opcua';
  readonly sources: string;
  readonly tags: string;
  readonly #server: OpcuaServer;
  readonly #context: WayContext;
  readonly #asset: number;
  #isCounting = false;

  private constructor(server: OpcuaServer, asset: number, context: WayContext) {
    this.#server = server;
    this.#context = context;
    this.#asset = asset;
    this.sources = `  cell: { opcua: "${server.url}", every: 50ms, security: None }\n`;
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${KEY}: { unit: 1, from: cell, node: "ns=1;s=Line1.Count", queue: 5000 } } }\n`;
  }

  static async open(asset: number, context: WayContext): Promise<OpcuaWay> {
    const server = new OpcuaServer();
    await server.start();
    return new OpcuaWay(server, asset, context);
  }

  /** It answers nothing, and its connections stay. */
  hang(isHanging: boolean): void {
    this.#server.signal(isHanging ? 'SIGSTOP' : 'SIGCONT');
  }

  produce(): void {
    this.#server.tell({ count: ENDLESSLY });
    this.#isCounting = true;
  }

  /** The program that reads it takes a while to load: resolves when values come. */
  async begun(): Promise<void> {
    await this.#until((acknowledged) => acknowledged.some((one) => one > 0), BEGUN_WITHIN_MS, 'it was never read');
  }

  /** It counts no further, and its last number is acknowledged. */
  async rest(): Promise<void> {
    if (!this.#isCounting) return;
    this.#isCounting = false;
    this.#server.tell({ count: 0 });
    // The number that it was at.
    await pause(500);
    const said = this.#server.said().map(({ value }) => value);
    const last = said.at(-1) ?? 0;
    await this.#until((acknowledged) => acknowledged.includes(last), LAST_WORD_MS, `${last} was never acknowledged`);
    const acknowledged = new Set(this.#server.acknowledged());
    this.#context.oracle.counted(this.name, this.#asset, KEY, acknowledged, [0, ...said]);
  }

  async close(): Promise<void> {
    this.hang(false);
    await this.#server.dispose();
  }

  async #until(holds: (acknowledged: number[]) => boolean, withinMs: number, what: string): Promise<void> {
    for (const end = performance.now() + withinMs; !holds(this.#server.acknowledged()); await pause(200)) {
      if (performance.now() > end) throw new Error(`of the server of OPC UA ${what}`);
    }
  }
}
