import { once } from 'node:events';
import { connect, Socket } from 'node:net';
import type { SerialPort } from 'serialport';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import {
  incompleteResponse,
  MAX_FRAME_BYTES,
  type ModbusRequest,
  serialFrame,
  serialResponse,
  tcpFrame,
  tcpResponse,
} from './frames.ts';
import type { ModbusAddress } from './line-spec.ts';
import { invalidResponse, ModbusError, serialErrorOf } from './modbus-error.ts';

const CONNECT_MS = 5_000;
/** Time within which the device must close its side of the connection before the socket is destroyed. */
const CLOSE_MS = 500;
/** A late response can precede the response to a request. */
const MAX_RECEIVED_BYTES = 2 * MAX_FRAME_BYTES;
/**
 * Number of consecutive unanswered requests after which a connection is considered dead. Some devices ignore the first
 * requests on a connection.
 */
const MAX_UNANSWERED = 3;
/** Maximum number of bytes of a frame in the log. */
const MAX_SHOWN_BYTES = 32;
const NOTHING = Buffer.alloc(0);

/** Opens a connection. Rejects with a `ModbusError`. */
export async function openConnection(address: ModbusAddress, clock: Clock): Promise<ModbusConnection> {
  if (address.transport === 'tcp') {
    const { host, port, framing } = address;
    const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 });
    try {
      await once(socket, 'connect', { signal: AbortSignal.timeout(CONNECT_MS) });
    } catch (error) {
      socket.on('error', () => {}).destroy();
      const isLate = (error as Error).name === 'AbortError';
      const reason = isLate ? `no response within ${CONNECT_MS} ms` : (codeOf(error) ?? messageOf(error));
      throw new ModbusError(`failed to connect to ${host} port ${port}: ${reason}`, 'closed', { cause: error });
    }
    return new ModbusConnection(socket, framing ?? 'tcp', clock);
  }
  const { path, baud, parity, stopBits } = address;
  // Loaded only if a serial line is configured.
  const { SerialPort } = await import('serialport');
  const port = new SerialPort({ path, baudRate: baud, parity, stopBits, dataBits: 8, autoOpen: false });
  await new Promise<void>((resolve, reject) => {
    port.open((error) => (error ? reject(serialErrorOf(error, path)) : resolve()));
  });
  return new ModbusConnection(port, 'rtu', clock);
}

/** The request in progress. */
interface Exchange {
  request: ModbusRequest;
  transaction: number;
  resolve(data: Buffer): void;
  reject(error: ModbusError): void;
}

/**
 * An open connection to one or more devices, which processes one request at a time.
 *
 * A late response is never mistaken for the response to a later request: Modbus TCP numbers its requests, and a TCP
 * connection whose responses have no number is closed after a request without a response. A serial port stays open,
 * because opening it resets some adapters; `ModbusLine` pauses the device instead. A TCP connection is also closed after
 * an invalid response, and reset after a write without a response, so that the operating system does not retransmit the
 * write.
 */
export class ModbusConnection {
  readonly #stream: Socket | SerialPort;
  readonly #framing: 'tcp' | 'rtu' | 'unnumbered';
  readonly #clock: Clock;
  #exchange: Exchange | undefined;
  /** Bytes received since the latest request. */
  #received: Buffer = NOTHING;
  #transaction = 0;
  #unanswered = 0;
  #closing: Promise<void> | undefined;
  /** Whether a device has responded. */
  hasResponded = false;

  /** `framing`: see `ModbusAddress`; `rtu` also for a serial port. */
  constructor(stream: Socket | SerialPort, framing: 'tcp' | 'rtu' | 'unnumbered', clock: Clock) {
    this.#stream = stream;
    this.#framing = framing;
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
  async send(request: ModbusRequest, signal: AbortSignal): Promise<Buffer> {
    if (!this.isOpen) throw closedError();
    const { timeoutMs } = request.device;
    const transaction = (this.#transaction + 1) & 0xffff;
    const { promise: response, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#transaction = transaction;
    this.#received = NOTHING;
    this.#exchange = { request, transaction, resolve, reject };
    const cancelTimeout = this.#clock.after(timeoutMs, () => {
      const { length } = this.#received;
      if (length > 0) this.#fail(incompleteResponse(this.#received, timeoutMs, this.#numberOf(transaction)));
      else this.#fail(new ModbusError(`no response within ${timeoutMs} ms`, 'silent'));
    });
    const onAbort = () => void this.close();
    const endsOnAbort = request.isWrite && this.#stream instanceof Socket;
    if (endsOnAbort) signal.addEventListener('abort', onAbort, { once: true });
    const frame = this.#framing === 'rtu' ? serialFrame(request) : tcpFrame(request, transaction);
    this.#stream.write(frame);
    try {
      return await response;
    } catch (error) {
      if (error instanceof ModbusError && error.failure === 'garbled') {
        error.frames = { sent: shownBytes(frame), received: shownBytes(this.#received) };
      }
      throw error;
    } finally {
      this.#exchange = undefined;
      cancelTimeout();
      if (endsOnAbort) signal.removeEventListener('abort', onAbort);
    }
  }

  #receive(bytes: Buffer): void {
    if (this.#exchange === undefined) return;
    const { request, transaction, resolve } = this.#exchange;
    const received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes]);
    this.#received = received;
    try {
      const data =
        this.#framing === 'rtu'
          ? serialResponse(received, request)
          : tcpResponse(received, request, this.#numberOf(transaction));
      if (data === undefined && received.length <= MAX_RECEIVED_BYTES) return;
      if (data === undefined) throw invalidResponse('too long');
      this.#recordResponse();
      resolve(data);
    } catch (error) {
      this.#fail(error as ModbusError);
    }
  }

  /** Ends the request in progress with an exception of the device, or without a valid response. */
  #fail(error: ModbusError): void {
    if (error.exception === undefined) {
      const isDead = ++this.#unanswered >= MAX_UNANSWERED;
      const isUsable =
        error.failure === 'silent' && this.#framing === 'tcp' && !this.#exchange?.request.isWrite && !isDead;
      if (this.#stream instanceof Socket && !isUsable) this.#closing ??= this.#closeStream();
    } else {
      this.#recordResponse();
    }
    this.#exchange?.reject(error);
  }

  /** Returns the transaction number that the response must contain. */
  #numberOf(transaction: number): number | undefined {
    return this.#framing === 'tcp' ? transaction : undefined;
  }

  #recordResponse(): void {
    this.hasResponded = true;
    this.#unanswered = 0;
  }

  /** Fails the request in progress, if any. Resolves when the other side can accept another connection. */
  close(): Promise<void> {
    this.#closing ??= this.#closeStream();
    this.#exchange?.reject(closedError());
    return this.#closing;
  }

  async #closeStream(): Promise<void> {
    const stream = this.#stream;
    if (!(stream instanceof Socket)) return await new Promise((resolve) => stream.close(() => resolve()));
    if (stream.destroyed) return;
    const closed = once(stream, 'close');
    if (this.#exchange?.request.isWrite) stream.resetAndDestroy();
    else stream.end();
    const cancel = this.#clock.after(CLOSE_MS, () => stream.destroy());
    await closed.catch(() => {});
    cancel();
  }
}

function shownBytes(bytes: Buffer): string {
  const hex = bytes.toString('hex', 0, MAX_SHOWN_BYTES);
  return bytes.length > MAX_SHOWN_BYTES ? `${hex}…` : hex;
}

function closedError(): ModbusError {
  return new ModbusError('the connection was closed', 'closed');
}
