import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type ModbusSerial from 'modbus-serial';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { Written } from './encoding.ts';
import { invalidByteCount, ModbusError, modbusErrorOf, serialErrorOf } from './modbus-error.ts';
import type { Span } from './requests.ts';

type Client = InstanceType<typeof ModbusSerial.default>;

/** Device address: a host and port, or a serial port. `framing: rtu`: the host forwards serial frames unchanged. */
export type ModbusAddress =
  | { transport: 'tcp'; host: string; port: number; framing?: 'rtu' }
  | { transport: 'rtu'; path: string; baud: number; parity: 'none' | 'even' | 'odd'; stopBits: 1 | 2 };

/** Connection to one or more devices, which processes one request at a time. */
export interface ModbusConnection {
  readonly isOpen: boolean;
  /**
   * Returns the bytes of the registers, or the packed bits (the first bit is the lowest bit of the first byte). Rejects
   * with a `ModbusError`.
   */
  read(unit: number, span: Span, timeoutMs: number): Promise<Uint8Array>;
  /**
   * Writes holding registers or a coil. Rejects with a `ModbusError` or the error of the guard. After a TCP request
   * without a response, the connection is closed.
   */
  write(unit: number, address: number, written: Written, sending: WriteSending): Promise<void>;
  /** Resolves when the other side can accept a new connection. */
  close(): Promise<void>;
}

interface WriteSending {
  timeoutMs: number;
  /** Called immediately before each request. Throws if the request must no longer be sent. */
  guard(): void;
  /** Closes a TCP connection during a request. */
  signal?: AbortSignal | undefined;
}

const CONNECT_MS = 5_000;
const ILLEGAL_FUNCTION = 1;
/** Time within which the device must close its side of the connection before the socket is destroyed. */
const CLOSE_MS = 500;
/**
 * Maximum number of bytes received for a request: two serial frames of maximum length, a late response and the current
 * one.
 */
const MAX_FRAME_BYTES = 512;
/** Offsets in a Modbus TCP frame: protocol identifier (0) and number of bytes that follow the length. */
const PROTOCOL_OFFSET = 2;
const LENGTH_OFFSET = 4;
const HEADER_BYTES = 6;

/** Rejects with a `ModbusError`. */
export async function openConnection(address: ModbusAddress): Promise<ModbusConnection> {
  // Loaded only if a device is configured.
  const { default: modbus } = await import('modbus-serial');
  const client = new modbus.default();
  // Without a listener, a connection reset would terminate the process. The current request fails separately.
  client.on('error', () => {});
  return address.transport === 'tcp' ? await openTcp(client, address) : await openSerial(client, address);
}

/** Opens the socket directly, because the driver hides the reason why a connection was closed. */
async function openTcp(
  client: Client,
  { host, port, framing }: Extract<ModbusAddress, { transport: 'tcp' }>,
): Promise<ModbusConnection> {
  const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(CONNECT_MS) });
  } catch (error) {
    socket.on('error', () => {}).destroy();
    const isLate = (error as Error).name === 'AbortError';
    const reason = isLate ? `no response within ${CONNECT_MS} ms` : (codeOf(error) ?? messageOf(error));
    throw new ModbusError(`failed to connect to ${host} port ${port}: ${reason}`, 'closed', { cause: error });
  }
  socket.on('error', () => {});
  const connection = new OpenConnection(client, {
    close: () => closeSocket(socket, () => socket.end()),
    reset: () => closeSocket(socket, () => socket.resetAndDestroy()),
  });
  // Use separate listeners, because the driver removes its own.
  socket.once('close', () => void connection.close());
  socket.once('end', () => void connection.close());
  if (framing === 'rtu') {
    socket.on('data', ({ length }: Buffer) => connection.count(length));
    await client.linkTelnet(socket, { port });
  } else {
    socket.once('data', (first: Buffer) => {
      if (!isTcpFrame(first)) void connection.fail(notTcpFrame());
    });
    await client.linkTCP(socket, { port });
  }
  return connection;
}

async function closeSocket(socket: Socket, begin: () => void): Promise<void> {
  if (socket.destroyed) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.once('close', () => resolve());
  begin();
  const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
  await promise;
  clearTimeout(timer);
}

async function openSerial(
  client: Client,
  { path, baud, parity, stopBits }: Extract<ModbusAddress, { transport: 'rtu' }>,
): Promise<ModbusConnection> {
  const close = () => new Promise<void>((resolve) => client.close(() => resolve()));
  const connection = new OpenConnection(client, { close });
  client.on('close', () => void connection.close());
  try {
    await client.connectRTUBuffered(path, { baudRate: baud, parity, stopBits, dataBits: 8 });
  } catch (error) {
    throw serialErrorOf(error, path);
  }
  return connection;
}

/** Ways to close a connection. */
interface Closing {
  /** Sends FIN, so that a device that accepts only one connection becomes available again. */
  close(): Promise<void>;
  /**
   * Discards data that was not acknowledged, so that the operating system does not retransmit a write request later.
   * Unset for serial ports.
   */
  reset?: () => Promise<void>;
}

class OpenConnection implements ModbusConnection {
  readonly #client: Client;
  readonly #ways: Closing;
  #isWriting = false;
  #closing: Promise<void> | undefined;
  #failRequest: ((error: ModbusError) => void) | undefined;
  /** Number of bytes received since the latest request. */
  #received = 0;

  constructor(client: Client, ways: Closing) {
    this.#client = client;
    this.#ways = ways;
  }

  get isOpen(): boolean {
    return this.#closing === undefined;
  }

  async read(unit: number, span: Span, timeoutMs: number): Promise<Uint8Array> {
    const { buffer } = await this.#send(unit, timeoutMs, () => this.#request(span));
    const isBits = span.table === 'coil' || span.table === 'discrete';
    if (buffer.length !== (isBits ? Math.ceil(span.length / 8) : span.length * 2)) throw invalidByteCount();
    return buffer;
  }

  /** Devices may support only one of the two functions for a single register or coil. */
  async write(unit: number, address: number, written: Written, sending: WriteSending): Promise<void> {
    const client = this.#client;
    const one = typeof written === 'boolean' ? written : written[0]!;
    const send = (request: () => Promise<unknown>) => this.#sendWrite(unit, sending, request);
    const many = () =>
      typeof written === 'boolean'
        ? client.writeCoils(address, [written])
        : client.writeRegisters(address, [...written]);
    if (typeof written !== 'boolean' && written.length > 1) return void (await send(many));
    try {
      await send(() =>
        typeof one === 'boolean' ? client.writeCoil(address, one) : client.writeRegister(address, one),
      );
    } catch (error) {
      if (!(error instanceof ModbusError) || error.exception !== ILLEGAL_FUNCTION) throw error;
      await send(many);
    }
  }

  async #sendWrite(unit: number, { timeoutMs, guard, signal }: WriteSending, request: () => Promise<unknown>) {
    const { reset } = this.#ways;
    const onAbort = () => void this.close();
    guard();
    this.#isWriting = true;
    if (reset) signal?.addEventListener('abort', onAbort, { once: true });
    try {
      await this.#send(unit, timeoutMs, request);
    } catch (error) {
      if (reset && (error as ModbusError).exception === undefined) void this.close();
      throw error;
    } finally {
      this.#isWriting = false;
      signal?.removeEventListener('abort', onAbort);
    }
  }

  async #send<Response>(unit: number, timeoutMs: number, request: () => Promise<Response>): Promise<Response> {
    if (!this.isOpen) throw closedError();
    // Fails the request when the connection is closed. The driver would otherwise wait for its timeout.
    const { promise: closed, reject } = Promise.withResolvers<never>();
    this.#failRequest = reject;
    this.#received = 0;
    this.#client.setID(unit);
    this.#client.setTimeout(timeoutMs);
    try {
      return await Promise.race([request(), closed]);
    } catch (error) {
      throw modbusErrorOf(error, timeoutMs);
    } finally {
      this.#failRequest = undefined;
    }
  }

  close(): Promise<void> {
    return this.fail(closedError());
  }

  /** Closes the connection. The current request, if any, fails with the error. */
  fail(error: ModbusError): Promise<void> {
    this.#failRequest?.(error);
    const { close, reset = close } = this.#ways;
    this.#closing ??= this.#isWriting ? reset() : close();
    return this.#closing;
  }

  /** Counts received bytes, because the driver keeps all bytes that are not part of a response. */
  count(bytes: number): void {
    this.#received += bytes;
    if (this.#received > MAX_FRAME_BYTES) void this.fail(new ModbusError('invalid response (too long)', 'garbled'));
  }

  #request({ table, address, length }: Span): Promise<{ buffer: Uint8Array }> {
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

/** Whether the first bytes of a connection may be a Modbus TCP frame, rather than the frame of a serial line. */
function isTcpFrame(bytes: Buffer): boolean {
  if (bytes.length < HEADER_BYTES || bytes.readUInt16BE(PROTOCOL_OFFSET) === 0) return true;
  return bytes.readUInt16BE(LENGTH_OFFSET) === bytes.length - HEADER_BYTES;
}

function notTcpFrame(): ModbusError {
  const hint = 'If the host forwards serial frames, set `framing: rtu`.';
  return new ModbusError('invalid response (not a Modbus TCP frame)', 'garbled', { hint });
}

function closedError(): ModbusError {
  return new ModbusError('the connection was closed', 'closed');
}
