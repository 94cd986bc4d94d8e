/**
 * Request queue for the devices behind a host and port, or on a serial line. Uses one connection by default, because
 * many Modbus gateways accept only one connection and a serial line transmits one frame at a time.
 *
 * States: closed (unused, or the connection was closed), open, resting (after a failed connection attempt, requests
 * fail immediately until the backoff expires), stopped.
 *
 * Invariants: a request waits only for earlier requests. A reader sends its next request after the response to its
 * previous request, so the queue contains at most one request per reader, and readers are served in turn. An
 * unresponsive device delays other devices by one timeout per attempt. It is then paused, and its requests fail without
 * using the line. A crash has no effect on devices, except that a write may have been sent.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { type ModbusAddress, type ModbusConnection, openConnection } from './connection.ts';
import type { Written } from './encoding.ts';
import { ModbusError } from './modbus-error.ts';
import type { Span } from './requests.ts';
import { REST_FLOOR_MS, Rest } from './rest.ts';

/** Requirements of a source that apply to all requests on its line. If sources differ, the strictest one applies. */
export interface LineRules {
  /** Maximum number of simultaneous connections to its host and port. */
  connections: number;
  /** Minimum time between a response and the next request, in milliseconds. */
  pauseMs: number;
  /** Whether to disconnect after each poll, because the device accepts only one client. */
  closeAfterPoll: boolean;
}

/** Specification of a source in tags.yaml. */
export interface ModbusSpec extends LineRules {
  address: ModbusAddress;
  /** Unit number of the device on its serial line or behind its Modbus gateway. */
  unit: number;
  /** Response timeout, in milliseconds. */
  timeoutMs: number;
  /** Maximum number of registers per request. */
  maxRegisters: number;
}

interface LineOptions {
  address: ModbusAddress;
  clock: Clock;
  log: Logger;
  /** Resolves when the previous connection is closed, because a device may accept only one connection. */
  after?: Promise<unknown>;
  open?: typeof openConnection;
}

interface Job {
  unit: number;
  /** Sends the request. Throws if it must no longer be sent. */
  send(connection: ModbusConnection): Promise<Uint8Array>;
  timeoutMs: number;
  signal: AbortSignal | undefined;
  response: PromiseWithResolvers<Uint8Array>;
}

/** A device and the sources in tags.yaml that read it. */
interface Unit {
  rest: Rest;
  sources: string[];
}

/** Slot for one connection, reused after reconnects. */
interface Slot {
  connection: ModbusConnection | undefined;
  isBusy: boolean;
  /** Whether the connection has returned a response. */
  isProven: boolean;
  /** Number of consecutive requests without a response. */
  unansweredRequests: number;
}

/** The limit is shorter for serial ports, because a user who connects an adapter is waiting for the result. */
const RECONNECT = { tcp: { baseMs: 1_000, capMs: 30_000 }, rtu: { baseMs: 1_000, capMs: 5_000 } };
/** Maximum number of consecutive unanswered requests before a connection to several devices is closed. */
const MAX_UNANSWERED = 3;

export class ModbusLine {
  readonly #name: string;
  readonly #options: LineOptions;
  readonly #trouble: TroubleLog;
  readonly #rest: Rest;
  readonly #units = new Map<number, Unit>();
  readonly #queue: Job[] = [];
  readonly #rules = new Set<LineRules>();
  #slots: Slot[] = [];
  #pauseMs = 0;
  #closesAfterPoll = false;
  /** Number of polls, tests and scans that use the line. */
  #users = 0;
  /** Earliest time of the next request. */
  #freeAtMs = Number.NEGATIVE_INFINITY;
  #opening: Promise<ModbusConnection> | undefined;
  #isStopped = false;

  constructor(options: LineOptions) {
    const { address, clock, log } = options;
    this.#options = options;
    this.#name = nameOf(address);
    this.#rest = new Rest(RECONNECT[address.transport]);
    this.#trouble = new TroubleLog(log, clock);
  }

  /** Registers a source for a device. Returns a function that ends the registration. */
  join(unit: number, source: string, rules: LineRules): () => void {
    const { sources } = this.#unit(unit);
    sources.push(source);
    this.#rules.add(rules);
    this.#applyRules();
    return () => {
      sources.splice(sources.indexOf(source), 1);
      this.#rules.delete(rules);
      this.#applyRules();
    };
  }

  #applyRules(): void {
    const { address } = this.#options;
    const rules = [...this.#rules];
    const isSerial = address.transport === 'rtu';
    // Silent interval before a frame on a serial line: three and a half characters.
    const silenceMs = isSerial ? Math.max(2, Math.ceil((3.5 * 11 * 1000) / address.baud)) : 0;
    this.#pauseMs = Math.max(silenceMs, ...rules.map(({ pauseMs }) => pauseMs));
    this.#closesAfterPoll = rules.some(({ closeAfterPoll }) => closeAfterPoll);
    // Connections beyond the maximum after a reload stay open until the line is closed.
    const max = isSerial ? 1 : Math.max(...rules.map(({ connections }) => connections));
    while (this.#slots.length < max) {
      this.#slots.push({ connection: undefined, isBusy: false, isProven: false, unansweredRequests: 0 });
    }
  }

  /**
   * Begins a poll, a test or a scan, whose requests share a connection even if the line disconnects after each poll.
   * Returns a function that ends it.
   */
  use(): () => void {
    this.#users++;
    return () => {
      this.#users--;
      for (const slot of this.#slots) this.#closeIfUnused(slot);
    };
  }

  /** Returns the bytes of the response. Rejects with a `ModbusError` or the abort reason of the signal. */
  read(unit: number, span: Span, timeoutMs: number, signal?: AbortSignal): Promise<Uint8Array> {
    return this.#queued(unit, timeoutMs, signal, (connection) => connection.read(unit, span, timeoutMs));
  }

  /**
   * Writes holding registers or a coil. `guard` is called immediately before the request is sent, also before a repeat,
   * and throws if it must no longer be sent.
   */
  async write(
    unit: number,
    { address, written }: { address: number; written: Written },
    timeoutMs: number,
    guard: () => void,
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#queued(unit, timeoutMs, signal, async (connection) => {
      await connection.write(unit, address, written, { timeoutMs, guard, signal });
      return new Uint8Array();
    });
  }

  async #queued(unit: number, timeoutMs: number, signal: AbortSignal | undefined, send: Job['send']) {
    const response = Promise.withResolvers<Uint8Array>();
    // After an abort, the caller no longer waits for the device, but the line still does before its next request.
    const onAbort = () => response.reject(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#queue.push({ unit, send, timeoutMs, signal, response });
    this.#next();
    try {
      return await response.promise;
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** Rejects pending requests and closes all connections. Resolves when other clients can connect. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const job of this.#queue.splice(0)) job.response.reject(stopping());
    await this.#opening?.catch(() => {});
    await Promise.all(this.#slots.map((slot) => slot.connection?.close()));
  }

  #next(): void {
    for (const slot of this.#slots) {
      while (!slot.isBusy) {
        const job = this.#queue.shift();
        if (job === undefined) return;
        const error = this.#rejection(job);
        if (error !== undefined) job.response.reject(error);
        else void this.#serve(slot, job);
      }
    }
  }

  /** Returns the reason why a request must not be sent, if any. */
  #rejection({ unit, signal }: Job): unknown {
    const nowMs = this.#options.clock.monotonicMs();
    if (signal?.aborted) return signal.reason;
    if (this.#isStopped) return stopping();
    for (const rest of [this.#rest, this.#unit(unit).rest]) {
      if (rest.error && !rest.isOver(nowMs)) {
        return new ModbusError(rest.error.message, 'resting', { hint: rest.error.hint ?? '', cause: rest.error });
      }
    }
    return undefined;
  }

  async #serve(slot: Slot, job: Job): Promise<void> {
    slot.isBusy = true;
    try {
      job.response.resolve(await this.#request(slot, job));
    } catch (error) {
      job.response.reject(error);
    } finally {
      slot.isBusy = false;
      this.#next();
      this.#closeIfUnused(slot);
    }
  }

  #closeIfUnused(slot: Slot): void {
    if (this.#closesAfterPoll && this.#users === 0 && !slot.isBusy) void slot.connection?.close();
  }

  async #request(slot: Slot, job: Job): Promise<Uint8Array> {
    for (;;) {
      const wasProven = slot.isProven && slot.connection?.isOpen === true;
      const connection = await this.#connectionOf(slot);
      await this.#pause(job.signal);
      try {
        const bytes = await job.send(connection);
        this.#recordResponse(slot, job.unit);
        return bytes;
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        this.#handleError(error, slot, job);
        // Retry once if the connection worked before, because devices close idle connections.
        if (error.failure !== 'closed' || !wasProven || this.#isStopped || job.signal?.aborted) throw error;
      } finally {
        this.#freeAtMs = this.#options.clock.monotonicMs() + this.#pauseMs;
      }
    }
  }

  /** Waits until the next request may be sent, and reserves the time for it. */
  async #pause(signal: AbortSignal | undefined): Promise<void> {
    const { clock } = this.#options;
    for (let nowMs = clock.monotonicMs(); nowMs < this.#freeAtMs; nowMs = clock.monotonicMs()) {
      await clock.sleep(this.#freeAtMs - nowMs, signal);
    }
    this.#freeAtMs = clock.monotonicMs() + this.#pauseMs;
  }

  async #connectionOf(slot: Slot): Promise<ModbusConnection> {
    if (slot.connection?.isOpen) return slot.connection;
    const { address, after, open = openConnection } = this.#options;
    await slot.connection?.close();
    await after?.catch(() => {});
    try {
      this.#opening = open(address);
      slot.connection = await this.#opening;
    } catch (error) {
      throw this.#recordConnectFailure(error as ModbusError);
    }
    if (this.#isStopped) {
      await slot.connection.close();
      throw stopping();
    }
    Object.assign(slot, { isProven: false, unansweredRequests: 0 });
    return slot.connection;
  }

  #recordResponse(slot: Slot, unit: number): void {
    slot.isProven = true;
    slot.unansweredRequests = 0;
    this.#rest.recordResponse();
    this.#unit(unit).rest.recordResponse();
    this.#trouble.recovered('modbus.disconnected', { line: this.#name }, 'connection to the Modbus device restored');
    this.#trouble.recovered('modbus.silent', this.#fieldsOf(unit), 'device is responding again', String(unit));
  }

  #handleError(error: ModbusError, slot: Slot, { unit, timeoutMs }: Job): void {
    const { address, clock } = this.#options;
    switch (error.failure) {
      case 'exception':
        this.#recordResponse(slot, unit);
        return;
      case 'silent': {
        // On a serial line, a late response could be mistaken for the response to the next request, so pause for at
        // least one more timeout.
        const floorMs = address.transport === 'rtu' ? Math.max(REST_FLOOR_MS, timeoutMs) : REST_FLOOR_MS;
        this.#unit(unit).rest.recordFailure(error, clock.monotonicMs(), () => clock.random(), floorMs);
        const fields = { ...this.#fieldsOf(unit), error: error.message };
        this.#trouble.report({ event: 'modbus.silent', ...fields }, 'no response from Modbus device', String(unit));
        // The Modbus gateway responded on behalf of the device, so the connection works.
        if (error.exception !== undefined) slot.unansweredRequests = 0;
        // A late frame could not be distinguished from the response to a later request.
        else if (address.transport === 'tcp' && address.framing === 'rtu') this.#drop(slot);
        else if (++slot.unansweredRequests >= Math.min(this.#units.size, MAX_UNANSWERED)) this.#drop(slot);
        return;
      }
      case 'garbled':
        // The start of the next response cannot be determined.
        this.#drop(slot);
        return;
      default:
        if (!slot.isProven) this.#recordConnectFailure(error);
        slot.isProven = false;
    }
  }

  /**
   * Closes the connection; the next request opens a new one. A serial port stays open, because reopening it resets
   * some adapters.
   */
  #drop(slot: Slot): void {
    if (this.#options.address.transport === 'rtu') return;
    void slot.connection?.close();
  }

  #recordConnectFailure(error: ModbusError): ModbusError {
    const { clock } = this.#options;
    this.#rest.recordFailure(error, clock.monotonicMs(), () => clock.random(), REST_FLOOR_MS);
    const fields = { line: this.#name, error: error.message, hint: error.hint };
    this.#trouble.report({ event: 'modbus.disconnected', ...fields }, 'failed to connect to the Modbus device');
    return error;
  }

  #unit(number: number): Unit {
    let unit = this.#units.get(number);
    if (unit === undefined) {
      unit = { rest: new Rest(), sources: [] };
      this.#units.set(number, unit);
    }
    return unit;
  }

  #fieldsOf(unit: number) {
    return { source: [...new Set(this.#unit(unit).sources)].join(' '), line: this.#name, unit };
  }
}

function stopping(): ModbusError {
  return new ModbusError('the source is stopping', 'closed');
}

/** Name of a line in logs: its host and port, or its serial port. */
export function nameOf(address: ModbusAddress): string {
  return address.transport === 'tcp' ? `${address.host}:${address.port}` : address.path;
}
