import type ModbusSerial from 'modbus-serial';
import { STAMPED_HERE, ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import { messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { fullJitterMs } from '../retry.ts';
import { type Block, blocksOf, decodeRegisters, placeOf, scaled } from './modbus-registers.ts';
import type { Point } from './points.ts';
import { TroubleLog } from './trouble-log.ts';

type Client = InstanceType<typeof ModbusSerial.default>;
type ModbusPoint = Point<'modbus'>;

export interface ModbusReaderOptions {
  /** Of the source in tags.yaml. */
  name: string;
  /** `tcp://host:port`; port 502 unless told. */
  url: string;
  /** The slave's number. */
  unit: number;
  points: readonly ModbusPoint[];
  clock: Clock;
  log: Logger;
  /** For a connection, and for an answer; 3 s unless told. */
  timeoutMs?: number;
}

const RECONNECT = { baseMs: 1_000, capMs: 60_000 };

/**
 * Reads a Modbus TCP slave once a poll (`PollLoop` says when). Registers that lie near each other come in one request; where a slave
 * refuses such a request, its registers are read one by one from then on. Disconnected, connecting (in `read`), connected: whatever is
 * not an answer of the slave ends the connection, and the next try waits with jitter, so that a slave that comes back is not overrun.
 */
export class ModbusReader {
  readonly #options: ModbusReaderOptions;
  readonly #trouble: TroubleLog;
  readonly #alone = new Set<ModbusPoint>();
  #blocks: Block<ModbusPoint>[];
  #client: Client | undefined;
  #failures = 0;
  #retryAtMs = 0;
  #lastError: unknown;

  constructor(options: ModbusReaderOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
    this.#blocks = blocksOf(options.points);
  }

  /** One value for each register that the slave gives. Rejects with a `TagferryError` when it gives none. */
  async read(signal?: AbortSignal): Promise<ValueColumns> {
    const { clock } = this.#options;
    const client = await this.#connect();
    const columns = new ValueColumns();
    for (const block of this.#blocks) {
      signal?.throwIfAborted();
      try {
        const answer = await readBlock(client, block);
        const wallMs = Math.max(0, Math.round(clock.wallMs()));
        for (const point of block.points) this.#add(columns, point, answer, block, wallMs);
      } catch (error) {
        if (isException(error)) this.#takeException(block, error);
        else {
          // What came before is still good; the rest waits for the next connection.
          this.#disconnect(error);
          if (columns.length === 0) throw this.#unreachable(error);
          this.#say('A slave stopped answering in the middle of a poll', error);
          break;
        }
      }
    }
    return columns;
  }

  /** Ends the connection. The next `read` makes one anew. */
  stop(): void {
    this.#client?.destroy(() => {});
    this.#client = undefined;
  }

  #add(columns: ValueColumns, point: ModbusPoint, answer: Answer, block: Block<ModbusPoint>, wallMs: number): void {
    const { register } = point.origin;
    const offset = placeOf(register).address - block.address;
    const isBits = register.table === 'coil' || register.table === 'discrete';
    const value = isBits
      ? scaled(answer.bits[offset] ? 1 : 0, register.scale)
      : decodeRegisters(answer.buffer, offset, register);
    const fields = { source: this.#options.name, value: point.name };
    if (Number.isFinite(value)) {
      columns.add(point.series, wallMs, value, STAMPED_HERE);
      this.#trouble.over('modbus.unreadable', fields, 'A register can be read again', point.name);
    } else {
      const error = 'it holds no number';
      this.#trouble.again({ event: 'modbus.unreadable', ...fields, error }, 'A register could not be read', point.name);
    }
  }

  /** The slave answered that it will not. */
  #takeException(block: Block<ModbusPoint>, error: unknown): void {
    if (block.points.length > 1) {
      for (const point of block.points) this.#alone.add(point);
      // Takes effect at the next poll: this one goes over the blocks as they were.
      this.#blocks = blocksOf(this.#options.points, this.#alone);
      return;
    }
    const [point] = block.points;
    const fields = { source: this.#options.name, value: point?.name, error: wordsOf(error) };
    this.#trouble.again({ event: 'modbus.unreadable', ...fields }, 'A register could not be read', point?.name);
  }

  async #connect(): Promise<Client> {
    if (this.#client?.isOpen) return this.#client;
    const { clock, url, unit, timeoutMs = 3_000 } = this.#options;
    if (clock.monotonicMs() < this.#retryAtMs) throw this.#unreachable(this.#lastError);
    this.stop();
    // Loaded only where a slave is configured.
    const { default: modbus } = await import('modbus-serial');
    const { hostname, port } = new URL(url);
    const client = new modbus.default();
    // Without a listener a reset would end the process; the transaction under way fails by itself.
    client.on('error', () => {});
    client.setID(unit);
    client.setTimeout(timeoutMs);
    this.#client = client;
    try {
      await client.connectTCP(hostname.replace(/^\[|\]$/g, ''), { port: Number(port || 502), timeout: timeoutMs });
    } catch (error) {
      this.#disconnect(error);
      throw this.#unreachable(error);
    }
    this.#failures = 0;
    this.#retryAtMs = 0;
    this.#trouble.over('modbus.disconnected', { source: this.#options.name }, 'A slave answers again');
    return client;
  }

  #disconnect(error: unknown): void {
    const { clock } = this.#options;
    this.stop();
    this.#lastError = error;
    this.#retryAtMs = clock.monotonicMs() + fullJitterMs(this.#failures++, RECONNECT, () => clock.random());
  }

  #unreachable(error: unknown): TagferryError {
    return new TagferryError(`the slave at ${this.#options.url} does not answer: ${wordsOf(error)}`, {
      code: 'modbus.unreachable',
      retryable: true,
      hint: 'Check the address, the cable and the unit number of the slave.',
      cause: error,
    });
  }

  #say(message: string, error: unknown): void {
    const fields = { source: this.#options.name, error: wordsOf(error) };
    this.#trouble.again({ event: 'modbus.disconnected', ...fields }, message);
  }
}

interface Answer {
  buffer: Uint8Array;
  bits: readonly boolean[];
}

async function readBlock(client: Client, { table, address, length }: Block<ModbusPoint>): Promise<Answer> {
  switch (table) {
    case 'holding':
      return { buffer: (await client.readHoldingRegisters(address, length)).buffer, bits: [] };
    case 'input':
      return { buffer: (await client.readInputRegisters(address, length)).buffer, bits: [] };
    case 'coil':
      return { buffer: new Uint8Array(0), bits: (await client.readCoils(address, length)).data };
    case 'discrete':
      return { buffer: new Uint8Array(0), bits: (await client.readDiscreteInputs(address, length)).data };
  }
}

/** The driver throws objects that look like errors and are none. */
function wordsOf(error: unknown): string {
  const { message } = (error ?? {}) as { message?: unknown };
  return messageOf(typeof message === 'string' ? message : error);
}

function isException(error: unknown): boolean {
  return typeof (error as { modbusCode?: unknown } | null)?.modbusCode === 'number';
}
