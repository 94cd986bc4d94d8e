import { once } from 'node:events';
import { connect, Socket } from 'node:net';
import type { SerialPort } from 'serialport';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { MAX_FRAME_BYTES, type ModbusRequest, serialFrame, serialResponse, tcpFrame, tcpResponse } from './frames.ts';
import { invalidResponse, ModbusError, serialErrorOf } from './modbus-error.ts';

/** Device address: a host and port, or a serial port. `framing: rtu`: the host forwards serial frames unchanged. */
export type ModbusAddress =
  | { transport: 'tcp'; host: string; port: number; framing?: 'rtu' }
  | { transport: 'rtu'; path: string; baud: number; parity: 'none' | 'even' | 'odd'; stopBits: 1 | 2 };

const CONNECT_MS = 5_000;
/** Time within which the device must close its side of the connection before the socket is destroyed. */
const CLOSE_MS = 500;
/** A late response can precede the response to a request. */
const MAX_RECEIVED_BYTES = 2 * MAX_FRAME_BYTES;
/** Number of consecutive unanswered requests after which a connection is considered dead. */
const MAX_UNANSWERED = 2;
const NOTHING = Buffer.alloc(0);

/** Opens a connection. Rejects with a `ModbusError`. */
export async function openConnection(address: ModbusAddress, clock: Clock): Promise<ModbusConnection> {
  const stream = address.transport === 'tcp' ? await openSocket(address) : await openSerialPort(address);
  return new ModbusConnection(stream, address.transport === 'rtu' || address.framing === 'rtu', clock);
}

async function openSocket({ host, port }: Extract<ModbusAddress, { transport: 'tcp' }>): Promise<Socket> {
  const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(CONNECT_MS) });
  } catch (error) {
    socket.on('error', () => {}).destroy();
    const isLate = (error as Error).name === 'AbortError';
    const reason = isLate ? `no response within ${CONNECT_MS} ms` : (codeOf(error) ?? messageOf(error));
    throw new ModbusError(`failed to connect to ${host} port ${port}: ${reason}`, 'closed', { cause: error });
  }
  return socket;
}

async function openSerialPort(address: Extract<ModbusAddress, { transport: 'rtu' }>): Promise<SerialPort> {
  const { path, baud, parity, stopBits } = address;
  // Loaded only if a serial line is configured.
  const { SerialPort } = await import('serialport');
  const port = new SerialPort({ path, baudRate: baud, parity, stopBits, dataBits: 8, autoOpen: false });
  const { promise: opened, resolve, reject } = Promise.withResolvers<void>();
  port.open((error) => (error ? reject(serialErrorOf(error, path)) : resolve()));
  await opened;
  return port;
}

/**
 * An open connection to one or more devices, which processes one request at a time.
 *
 * A late response is never mistaken for the response to a later request: Modbus TCP numbers its requests, and a TCP
 * connection with serial frames is closed after a request without a response. A serial port stays open, because opening
 * it resets some adapters; `ModbusLine` pauses the device instead. A TCP connection is also closed after an invalid
 * response, and reset after a write without a response, so that the operating system does not retransmit the write.
 */
export class ModbusConnection {
  readonly #stream: Socket | SerialPort;
  readonly #isSerial: boolean;
  readonly #clock: Clock;
  /** The request in progress. */
  #request: (ModbusRequest & { response: PromiseWithResolvers<Buffer>; cancelTimeout(): void }) | undefined;
  /** Bytes received since the latest request. */
  #received: Buffer = NOTHING;
  #transaction = 0;
  #unanswered = 0;
  #closing: Promise<void> | undefined;
  /** Whether a device has responded. */
  hasResponded = false;

  /** `isSerial`: whether frames are those of a serial line. */
  constructor(stream: Socket | SerialPort, isSerial: boolean, clock: Clock) {
    this.#stream = stream;
    this.#isSerial = isSerial;
    this.#clock = clock;
    stream.on('data', (bytes: Buffer) => this.#receive(bytes));
    // The event `close` follows an error.
    stream.on('error', () => {});
    stream.on('end', () => void this.close());
    stream.on('close', () => void this.close());
  }

  get isOpen(): boolean {
    return this.#closing === undefined;
  }

  /**
   * Sends a request. Returns the data of the response: registers, packed bits (the first bit is the lowest bit of the
   * first byte), or the confirmation of a write. Rejects with a `ModbusError`. An abort ends a write over TCP.
   */
  async send(request: ModbusRequest, timeoutMs: number, signal: AbortSignal): Promise<Buffer> {
    if (!this.isOpen) throw closedError();
    const onAbort = () => void this.close();
    const endsOnAbort = request.isWrite && this.#stream instanceof Socket;
    if (endsOnAbort) signal.addEventListener('abort', onAbort, { once: true });
    this.#transaction = (this.#transaction + 1) & 0xffff;
    this.#received = NOTHING;
    const response = Promise.withResolvers<Buffer>();
    const cancelTimeout = this.#clock.after(timeoutMs, () => this.#fail(this.#lateError(timeoutMs)));
    this.#request = { ...request, transaction: this.#transaction, response, cancelTimeout };
    this.#stream.write(this.#isSerial ? serialFrame(this.#request) : tcpFrame(this.#request));
    try {
      return await response.promise;
    } finally {
      if (endsOnAbort) signal.removeEventListener('abort', onAbort);
    }
  }

  #receive(bytes: Buffer): void {
    if (this.#request === undefined) return;
    this.#received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes]);
    try {
      const data = (this.#isSerial ? serialResponse : tcpResponse)(this.#received, this.#request);
      if (data !== undefined) this.#recordResponse()?.resolve(data);
      else if (this.#received.length > MAX_RECEIVED_BYTES) throw invalidResponse('too long');
    } catch (error) {
      this.#fail(error as ModbusError);
    }
  }

  #lateError(timeoutMs: number): ModbusError {
    if (this.#received.length > 0) return invalidResponse(`no complete response within ${timeoutMs} ms`);
    return new ModbusError(`no response within ${timeoutMs} ms`, 'silent');
  }

  /** Ends the request in progress with an exception of the device, or without a valid response. */
  #fail(error: ModbusError): void {
    if (error.exception !== undefined) return void this.#recordResponse()?.reject(error);
    const isDead = ++this.#unanswered >= MAX_UNANSWERED;
    const isUsable = error.failure === 'silent' && !this.#isSerial && !this.#request?.isWrite && !isDead;
    if (this.#stream instanceof Socket && !isUsable) this.#closing ??= this.#closeStream();
    this.#endRequest()?.reject(error);
  }

  #recordResponse(): PromiseWithResolvers<Buffer> | undefined {
    this.hasResponded = true;
    this.#unanswered = 0;
    return this.#endRequest();
  }

  #endRequest(): PromiseWithResolvers<Buffer> | undefined {
    const request = this.#request;
    this.#request = undefined;
    request?.cancelTimeout();
    return request?.response;
  }

  /** Fails the request in progress, if any. Resolves when the other side can accept another connection. */
  close(): Promise<void> {
    this.#closing ??= this.#closeStream();
    this.#endRequest()?.reject(closedError());
    return this.#closing;
  }

  async #closeStream(): Promise<void> {
    const stream = this.#stream;
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    if (!(stream instanceof Socket)) {
      stream.close(() => resolve());
      return await closed;
    }
    if (stream.destroyed) return;
    stream.once('close', () => resolve());
    if (this.#request?.isWrite) stream.resetAndDestroy();
    else stream.end();
    const cancel = this.#clock.after(CLOSE_MS, () => stream.destroy());
    await closed;
    cancel();
  }
}

function closedError(): ModbusError {
  return new ModbusError('the connection was closed', 'closed');
}
