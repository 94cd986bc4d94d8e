import { connect, type Socket } from 'node:net';
import type ModbusSerial from 'modbus-serial';
import { ModbusError, modbusErrorOf, serialErrorOf } from './modbus-error.ts';
import type { Span } from './refused-registers.ts';

type Client = InstanceType<typeof ModbusSerial.default>;

type Parity = 'none' | 'even' | 'odd';

/** Where devices are: behind a host and port, or on a serial line. */
export type ModbusAddress =
  | { transport: 'tcp'; host: string; port: number }
  | { transport: 'rtu'; path: string; baud: number; parity: Parity; stopBits: 1 | 2 };

/** One connection to one or more devices. One request at a time. */
export interface ModbusConnection {
  readonly isOpen: boolean;
  /** The bytes of the registers, or of the bits (the first is the lowest of the first byte). Rejects with a `ModbusError`. */
  read(unit: number, span: Span, timeoutMs: number): Promise<Uint8Array>;
  /** Resolves when the other side may be connected to again. */
  close(): Promise<void>;
}

/** A connection that is not open after so long is given up. */
const CONNECT_MS = 5_000;

/** `onClosed` is called once, when an open connection ends for whatever reason. Rejects with a `ModbusError`. */
export async function openConnection(address: ModbusAddress, onClosed: () => void): Promise<ModbusConnection> {
  // Loaded only where a device is configured.
  const { default: modbus } = await import('modbus-serial');
  const client = new modbus.default();
  // Without a listener a reset would end the process; the request under way fails by itself.
  client.on('error', () => {});
  return address.transport === 'tcp'
    ? await openTcp(client, address, onClosed)
    : await openSerial(client, address, onClosed);
}

/** The socket is ours, and not the driver's, which hides how a connection ends. */
async function openTcp(
  client: Client,
  { host, port }: Extract<ModbusAddress, { transport: 'tcp' }>,
  onClosed: () => void,
): Promise<ModbusConnection> {
  const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 });
  await connected(socket, `${host} port ${port}`);
  const open = new OpenConnection(client, onClosed, async () => {
    if (socket.destroyed) return;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    // FIN, not RST: a device that takes one connection is to notice that it is free again.
    socket.end();
    const cut = setTimeout(() => socket.destroy(), 500);
    await closed;
    clearTimeout(cut);
  });
  // In its handler the driver forgets its listeners; ours stays.
  socket.once('close', () => open.ended());
  socket.once('end', () => open.ended());
  await client.linkTCP(socket, { port });
  return open;
}

function connected(socket: Socket, place: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (error: unknown) => {
      clearTimeout(late);
      socket.destroy();
      reject(new ModbusError(`no connection to ${place}: ${wordsOf(error)}`, 'closed', { cause: error }));
    };
    const late = setTimeout(() => over(new Error(`nothing within ${CONNECT_MS} ms`)), CONNECT_MS);
    socket.once('error', over);
    socket.once('connect', () => {
      clearTimeout(late);
      socket.off('error', over);
      socket.on('error', () => {});
      resolve();
    });
  });
}

function wordsOf(error: unknown): string {
  const { code, message } = error as { code?: string; message: string };
  return code ?? message;
}

async function openSerial(
  client: Client,
  { path, baud, parity, stopBits }: Extract<ModbusAddress, { transport: 'rtu' }>,
  onClosed: () => void,
): Promise<ModbusConnection> {
  const open = new OpenConnection(
    client,
    onClosed,
    () => new Promise<void>((resolve) => client.close(() => resolve())),
  );
  client.on('close', () => open.ended());
  try {
    await client.connectRTUBuffered(path, { baudRate: baud, parity, stopBits, dataBits: 8 });
  } catch (error) {
    throw serialErrorOf(error, path);
  }
  return open;
}

class OpenConnection implements ModbusConnection {
  readonly #client: Client;
  readonly #onClosed: () => void;
  readonly #end: () => Promise<void>;
  #isEnded = false;
  #failWaiting: ((error: ModbusError) => void) | undefined;
  #closing: Promise<void> | undefined;

  constructor(client: Client, onClosed: () => void, end: () => Promise<void>) {
    this.#client = client;
    this.#onClosed = onClosed;
    this.#end = end;
  }

  get isOpen(): boolean {
    return !this.#isEnded;
  }

  async read(unit: number, span: Span, timeoutMs: number): Promise<Uint8Array> {
    if (this.#isEnded) throw closedError();
    // What ends the connection ends the wait: the driver would wait for its timeout.
    const ended = new Promise<never>((_, reject) => {
      this.#failWaiting = reject;
    });
    this.#client.setID(unit);
    this.#client.setTimeout(timeoutMs);
    try {
      return (await Promise.race([this.#ask(span), ended])).buffer;
    } catch (error) {
      throw modbusErrorOf(error, timeoutMs);
    } finally {
      this.#failWaiting = undefined;
    }
  }

  close(): Promise<void> {
    this.#isEnded = true;
    this.#failWaiting?.(closedError());
    this.#closing ??= this.#end();
    return this.#closing;
  }

  /** The other side is gone. */
  ended(): void {
    if (this.#isEnded) return;
    void this.close();
    this.#onClosed();
  }

  #ask({ table, address, length }: Span): Promise<{ buffer: Uint8Array }> {
    switch (table) {
      case 'holding':
        return this.#client.readHoldingRegisters(address, length);
      case 'input':
        return this.#client.readInputRegisters(address, length);
      case 'coil':
        return this.#client.readCoils(address, length);
      case 'discrete':
        return this.#client.readDiscreteInputs(address, length);
    }
  }
}

function closedError(): ModbusError {
  return new ModbusError('the connection ended', 'closed');
}
