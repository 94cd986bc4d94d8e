import { freePort } from '../../../src/base/port-claim.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Peer } from '../../e2e/harness/modbus-peer.ts';
import { Loop, pause, type Way, type WayContext } from './way.ts';

const UNIT = 1;
/** Devices with unknown host names: six, because libuv has four threads for lookups. */
const UNKNOWN = [1, 2, 3, 4, 5, 6];

/** Connection to a device, and the members of its source. */
interface Device {
  name: string;
  /** Name of the source. */
  source: string;
  open(port: number): Promise<Peer>;
  members: string;
  /** Sources with unknown host names. */
  unknown: readonly number[];
}

const PLAIN: Device = {
  name: 'modbus',
  source: 'plc',
  open: (port) => Peer.tcp(port),
  members: 'every: 100ms, timeout: 500ms',
  unknown: UNKNOWN,
};
/** Forwards serial frames over one connection, and ignores requests that follow a response within 5 ms. */
const RESTRICTED: Device = {
  name: 'modbus-gateway',
  source: 'gateway',
  async open(port) {
    const peer = await Peer.rtuOverTcp(port);
    await peer.configure({ connections: 1, gap: 0.005 });
    await peer.configure({ unit: UNIT, max_count: 2 });
    return peer;
  },
  members: 'every: 100ms, timeout: 500ms, framing: rtu, pause: 20ms, max_registers: 2, close_after_poll: true',
  unknown: [],
};

/**
 * A pymodbus device whose counter increases with each response. The protocol has no acknowledgement, so the number of
 * values that the agent reports as stored must be delivered.
 */
export class ModbusWay implements Way {
  readonly name: string;
  readonly sources: string;
  readonly tags: string;
  readonly #peer: Peer;
  readonly #agent: AgentProcess;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #source: string;
  readonly #loop = new Loop(() => this.#readStored());
  #earlier = 0;
  #stored = 0;

  private constructor(
    { name, source, members, unknown }: Device,
    peer: Peer,
    port: number,
    agent: AgentProcess,
    asset: number,
    context: WayContext,
  ) {
    this.name = name;
    this.#peer = peer;
    this.#agent = agent;
    this.#asset = asset;
    this.#source = source;
    this.#context = context;
    const others = unknown.map((at) => `  plc${at}: { modbus: "tcp://plc${at}.plant.prove:502", every: 1s }\n`);
    this.sources = `  ${source}: { modbus: "tcp://127.0.0.1:${port}", unit: ${UNIT}, ${members} }\n${others.join('')}`;
    const values = unknown.map((at) => `v${at}: { unit: 1, from: plc${at}, register: holding 0 }`);
    values.push(`n: { unit: 1, from: ${source}, register: holding 10, type: uint32 }`);
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values.join(', ')} } }\n`;
  }

  static async open(agent: AgentProcess, asset: number, context: WayContext, device = PLAIN): Promise<ModbusWay> {
    const port = await freePort();
    return new ModbusWay(device, await device.open(port), port, agent, asset, context);
  }

  /** Opens a device behind a gateway with restrictions. */
  static async openRestricted(agent: AgentProcess, asset: number, context: WayContext): Promise<ModbusWay> {
    return await ModbusWay.open(agent, asset, context, RESTRICTED);
  }

  /** Makes the device accept connections without responding. */
  async hang(isHanging: boolean): Promise<void> {
    await this.#peer.configure({ unit: UNIT, max_count: 2, hang: isHanging });
  }

  produce(): void {
    this.hang(false).catch(() => {});
    this.#loop.start(200);
  }

  /** Stops the device from responding, so that no further values are produced. */
  async rest(): Promise<void> {
    await this.#loop.end();
    await this.hang(true);
    // Lets the agent count the values read so far.
    await pause(1_500);
    await this.#readStored();
    const counted = this.#earlier + this.#stored;
    this.#context.oracle.counted(this.name, this.#asset, 'n', counted, this.#peer.counted(UNIT));
  }

  async close(): Promise<void> {
    await this.#loop.end();
    await this.#peer.end();
  }

  async #readStored(): Promise<void> {
    const status = await Promise.race([this.#agent.status().catch(() => undefined), pause(1_000)]);
    const report = (status?.sources as SourceReport[] | undefined)?.find(({ name }) => name === this.#source);
    if (report === undefined) return;
    // The counter restarts with the agent.
    if (report.stored < this.#stored) this.#earlier += this.#stored;
    this.#stored = report.stored;
  }
}
