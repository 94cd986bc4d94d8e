/**
 * Request queue for the devices behind a host and port, or on a serial line, shared by all their sources. Uses one
 * connection by default, because many Modbus gateways accept only one and a serial line transmits one frame at a time.
 *
 * A request waits only for earlier requests. A reader sends its next request after the response to its previous one, so
 * readers are served in turn. A failed connection attempt pauses the line, and an unresponsive device is paused alone:
 * meanwhile, requests fail immediately with the same error. An unresponsive device therefore delays others by one
 * timeout per attempt. A crash has no effect on devices, except that a write may have been sent.
 */
import { type Clock, raced } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import { type Backoff, fullJitterMs } from '../../base/retry.ts';
import type { Source } from '../../config/tags.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { type ModbusAddress, type ModbusConnection, openConnection } from './connection.ts';
import type { ModbusRequest } from './frames.ts';
import { ModbusError } from './modbus-error.ts';

/**
 * Specification of a source in tags.yaml. If sources on one line differ, the maximum of `connections` and `pauseMs`
 * applies, and `closeAfterPoll` if any of them sets it.
 */
export interface ModbusSpec {
  address: ModbusAddress;
  /** Unit number of the device on its serial line or behind its Modbus gateway. */
  unit: number;
  /** Response timeout, in milliseconds. */
  timeoutMs: number;
  /** Maximum number of registers per request. */
  maxRegisters: number;
  /** Maximum number of simultaneous connections to the host and port. */
  connections: number;
  /** Minimum time between a response and the next request, in milliseconds. */
  pauseMs: number;
  /** Whether to disconnect after each poll, because the device accepts only one client. */
  closeAfterPoll: boolean;
}

type Sender = Source<ModbusSpec>;

/** Slot for one connection, reused after reconnects. */
interface Slot {
  connection: ModbusConnection | undefined;
  isBusy: boolean;
}

/** Pause after failures, which grows with each failure until the next response. */
interface Rest {
  error: ModbusError;
  failures: number;
  untilMs: number;
}

/** The limit is shorter for serial ports, because a user who connects an adapter is waiting for the result. */
const RECONNECT = { tcp: { baseMs: 1_000, capMs: 30_000 }, rtu: { baseMs: 1_000, capMs: 5_000 } };
const UNRESPONSIVE: Backoff = { baseMs: 2_000, capMs: 30_000 };
const MIN_REST_MS = 250;
const ILLEGAL_FUNCTION = 1;

/** All lines of this process, by serial port or by host and port. */
export type ModbusLines = Map<string, ModbusLine>;

/** Returns the line of a source, which uses it until `leave`. */
export function joinLine(lines: ModbusLines, source: Sender, clock: Clock, log: Logger): ModbusLine {
  const { address } = source.spec;
  const name = address.transport === 'tcp' ? `${address.host}:${address.port}` : address.path;
  const line = lines.get(name) ?? new ModbusLine(name, address, clock, log);
  lines.set(name, line);
  line.join(source);
  return line;
}

export class ModbusLine {
  readonly #name: string;
  readonly #clock: Clock;
  readonly #trouble: TroubleLog;
  /** Address of the source that joined most recently. */
  #address: ModbusAddress;
  readonly #sources = new Set<Sender>();
  readonly #slots: Slot[] = [];
  /** Requests that wait for a slot. */
  readonly #waiting: ((slot: Slot) => void)[] = [];
  /** Pauses of unresponsive devices by unit number, and the pause after failed connection attempts. */
  readonly #rests = new Map<number | 'line', Rest>();
  /** Number of polls and writes in progress. */
  #uses = 0;
  #closesAfterPoll = false;
  #pauseMs = 0;
  /** Earliest time of the next request. */
  #freeAtMs = Number.NEGATIVE_INFINITY;

  constructor(name: string, address: ModbusAddress, clock: Clock, log: Logger) {
    this.#name = name;
    this.#address = address;
    this.#clock = clock;
    this.#trouble = new TroubleLog(log, clock);
  }

  join(source: Sender): void {
    this.#sources.add(source);
    const { address } = source.spec;
    // A reload can change the settings of a serial port or the framing of a host.
    if (JSON.stringify(address) !== JSON.stringify(this.#address)) {
      this.#address = address;
      void this.#closeAll();
    }
    this.#applySettings();
  }

  /** Closes the connections if no other source uses the line. Resolves when they are closed. */
  async leave(source: Sender): Promise<void> {
    this.#sources.delete(source);
    this.#applySettings();
    if (this.#sources.size === 0) await this.#closeAll();
  }

  #applySettings(): void {
    const specs = [...this.#sources].map(({ spec }) => spec);
    this.#pauseMs = Math.max(silenceMs(this.#address), ...specs.map(({ pauseMs }) => pauseMs));
    this.#closesAfterPoll = specs.some(({ closeAfterPoll }) => closeAfterPoll);
    // Connections beyond the maximum after a reload are reused until the line is closed.
    const count = this.#address.transport === 'rtu' ? 1 : Math.max(1, ...specs.map(({ connections }) => connections));
    while (this.#slots.length < count) this.#slots.push({ connection: undefined, isBusy: false });
  }

  /** Runs a poll or a write, whose requests share a connection even if the line disconnects after each poll. */
  async use<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#uses++;
    try {
      return await work();
    } finally {
      this.#uses--;
      for (const slot of this.#slots) this.#closeIfUnused(slot);
    }
  }

  /**
   * Sends a request, and the next one only if the device does not support the function. Returns the data of the response.
   * Rejects with a `ModbusError`, with the reason of the signal, or with the error of `guard`, which is called immediately
   * before each request and throws if it must no longer be sent. After an abort, the line still waits for the response to
   * a read; a TCP connection is reset during a write.
   */
  send(
    requests: readonly ModbusRequest[],
    timeoutMs: number,
    signal: AbortSignal,
    guard: () => void = () => {},
  ): Promise<Buffer> {
    return raced(this.#sendInTurn(requests, timeoutMs, signal, guard), signal);
  }

  async #sendInTurn(
    requests: readonly ModbusRequest[],
    timeoutMs: number,
    signal: AbortSignal,
    guard: () => void,
  ): Promise<Buffer> {
    const free = this.#slots.find(({ isBusy }) => !isBusy);
    const slot = free ?? (await new Promise<Slot>((resolve) => this.#waiting.push(resolve)));
    slot.isBusy = true;
    const left = [...requests];
    try {
      for (;;) {
        const request = left[0]!;
        signal.throwIfAborted();
        this.#throwIfResting(request.unit);
        const connection = await this.#connectionOf(slot);
        if (this.#pauseMs > 0) await this.#pause(signal);
        signal.throwIfAborted();
        const { hasResponded } = connection;
        try {
          guard();
          const data = await connection.send(request, timeoutMs, signal);
          this.#recordResponse(request.unit);
          return data;
        } catch (error) {
          if (!(error instanceof ModbusError)) throw error;
          this.#recordFailure(error, request.unit, timeoutMs, hasResponded);
          if (error.exception === ILLEGAL_FUNCTION) left.shift();
          // Retry once if the connection worked before, because devices close idle connections.
          const isRetried = error.exception === ILLEGAL_FUNCTION || (error.failure === 'closed' && hasResponded);
          if (!isRetried || left.length === 0) throw error;
        } finally {
          this.#freeAtMs = this.#clock.monotonicMs() + this.#pauseMs;
        }
      }
    } finally {
      const next = this.#waiting.shift();
      slot.isBusy = next !== undefined;
      next?.(slot);
      this.#closeIfUnused(slot);
    }
  }

  /** Throws if the device or the line is paused, or no longer used by a source. */
  #throwIfResting(unit: number): void {
    if (this.#sources.size === 0) throw new ModbusError('the source is stopping', 'closed');
    if (this.#rests.size === 0) return;
    const nowMs = this.#clock.monotonicMs();
    for (const rest of [this.#rests.get('line'), this.#rests.get(unit)]) {
      if (rest !== undefined && nowMs < rest.untilMs) throw rest.error;
    }
  }

  async #connectionOf(slot: Slot): Promise<ModbusConnection> {
    while (!slot.connection?.isOpen) {
      // A device may accept only one connection.
      await slot.connection?.close();
      const address = this.#address;
      try {
        slot.connection = await openConnection(address, this.#clock);
      } catch (error) {
        this.#recordDisconnect(error as ModbusError);
        throw error;
      }
      if (address !== this.#address) void slot.connection.close();
    }
    return slot.connection;
  }

  /** Waits until the next request may be sent, and reserves the time for it. */
  async #pause(signal: AbortSignal): Promise<void> {
    const clock = this.#clock;
    while (clock.monotonicMs() < this.#freeAtMs) await clock.sleep(this.#freeAtMs - clock.monotonicMs(), signal);
    this.#freeAtMs = clock.monotonicMs() + this.#pauseMs;
  }

  #recordResponse(unit: number): void {
    if (this.#rests.delete('line')) {
      this.#trouble.recovered('modbus.disconnected', { line: this.#name }, 'connection to the Modbus device restored');
    }
    if (this.#rests.delete(unit)) {
      this.#trouble.recovered('modbus.silent', this.#fieldsOf(unit), 'device connection restored', String(unit));
    }
  }

  #recordFailure(error: ModbusError, unit: number, timeoutMs: number, hadResponded: boolean): void {
    if (error.failure === 'exception') this.#recordResponse(unit);
    if (error.failure === 'closed' && !hadResponded) this.#recordDisconnect(error);
    if (error.failure !== 'silent') return;
    // On a serial line, a late response could be mistaken for the response to the next request within this time.
    this.#pauseRequests(unit, error, UNRESPONSIVE, Math.max(MIN_REST_MS, timeoutMs));
    const fields = { ...this.#fieldsOf(unit), error: error.message };
    this.#trouble.report({ event: 'modbus.silent', ...fields }, 'no response from Modbus device', String(unit));
  }

  #recordDisconnect(error: ModbusError): void {
    this.#pauseRequests('line', error, RECONNECT[this.#address.transport], MIN_REST_MS);
    const fields = { line: this.#name, error: error.message, hint: error.hint };
    this.#trouble.report({ event: 'modbus.disconnected', ...fields }, 'failed to connect to the Modbus device');
  }

  #pauseRequests(key: number | 'line', error: ModbusError, backoff: Backoff, floorMs: number): void {
    const clock = this.#clock;
    const { failures = 0 } = this.#rests.get(key) ?? {};
    const untilMs = clock.monotonicMs() + fullJitterMs(failures, backoff, () => clock.random(), floorMs);
    this.#rests.set(key, { error, failures: failures + 1, untilMs });
  }

  #fieldsOf(unit: number) {
    const names = [...this.#sources].filter(({ spec }) => spec.unit === unit).map(({ name }) => name);
    return { source: [...new Set(names)].join(' '), line: this.#name, unit };
  }

  #closeIfUnused({ isBusy, connection }: Slot): void {
    const isUnused = this.#sources.size === 0 || (this.#closesAfterPoll && this.#uses === 0);
    if (isUnused && !isBusy) void connection?.close();
  }

  async #closeAll(): Promise<void> {
    await Promise.all(this.#slots.map(({ connection }) => connection?.close()));
  }
}

/** Returns the silent interval before a frame on a serial line: three and a half characters of eleven bits. */
function silenceMs(address: ModbusAddress): number {
  return address.transport === 'rtu' ? Math.max(2, Math.ceil((3.5 * 11 * 1000) / address.baud)) : 0;
}
