import { freePort } from '../../../src/base/port-claim.ts';
import type { SourceReport } from '../../../src/sources/source-report.ts';
import type { AgentProcess } from '../../process/agent-process.ts';
import { Peer } from '../../sources/modbus/peer.ts';
import { Loop, pause, type Way, type WayContext } from './way.ts';

const UNIT = 1;
/** Devices whose names no name server knows: six, because libuv has four threads for lookups. */
const UNKNOWN = [1, 2, 3, 4, 5, 6];

/**
 * A device of pymodbus whose counter says one more with each answer. It is told nothing, so the obligation is what the agent shows to have
 * counted: so many of what the device has answered are on disk.
 */
export class ModbusWay implements Way {
  readonly name = 'modbus';
  readonly sources: string;
  readonly tags: string;
  readonly #peer: Peer;
  readonly #agent: AgentProcess;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #loop = new Loop(() => this.#look());
  #earlier = 0;
  #stored = 0;

  private constructor(peer: Peer, port: number, agent: AgentProcess, asset: number, context: WayContext) {
    this.#peer = peer;
    this.#agent = agent;
    this.#asset = asset;
    this.#context = context;
    const unknown = UNKNOWN.map((at) => `  plc${at}: { modbus: "tcp://plc${at}.plant.prove:502", every: 1s }\n`);
    this.sources = `  plc: { modbus: "tcp://127.0.0.1:${port}", unit: ${UNIT}, every: 100ms, timeout: 500ms }\n${unknown.join('')}`;
    const values = UNKNOWN.map((at) => `v${at}: { unit: 1, from: plc${at}, register: holding 0 }`);
    values.push('n: { unit: 1, from: plc, register: holding 10, type: uint32 }');
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
  }

  static async open(agent: AgentProcess, asset: number, context: WayContext): Promise<ModbusWay> {
    const port = await freePort();
    return new ModbusWay(await Peer.tcp(port), port, agent, asset, context);
  }

  /** The device takes connections and does not answer. */
  async hang(isHanging: boolean): Promise<void> {
    await this.#peer.tell({ unit: UNIT, hang: isHanging });
  }

  produce(): void {
    this.#peer.tell({ unit: UNIT, hang: false }).catch(() => {});
    this.#loop.start(200);
  }

  /** The device falls silent, so that what it has answered is all there is to judge. */
  async rest(): Promise<void> {
    await this.#loop.end();
    await this.hang(true);
    // What was read before is counted by then.
    await pause(1_500);
    await this.#look();
    const counted = this.#earlier + this.#stored;
    this.#context.oracle.counted(this.name, this.#asset, 'n', counted, this.#peer.counted(UNIT));
  }

  async close(): Promise<void> {
    await this.#loop.end();
    await this.#peer.end();
  }

  async #look(): Promise<void> {
    const status = await Promise.race([this.#agent.status().catch(() => undefined), pause(1_000)]);
    const report = (status?.sources as SourceReport[] | undefined)?.find(({ name }) => name === 'plc');
    if (report === undefined) return;
    // It counts from its start on.
    if (report.stored < this.#stored) this.#earlier += this.#stored;
    this.#stored = report.stored;
  }
}
