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
import { TroubleLog } from '../intake/trouble-log.ts';
import { type ModbusConnection, openConnection } from './connection.ts';
import type { ModbusRequest } from './frames.ts';
import { lineNameOf, type ModbusAddress, type ModbusSpec } from './line-spec.ts';
import { ModbusError } from './modbus-error.ts';

/** A running source or a test of a source. */
export interface LineUser {
  readonly name: string;
  readonly spec: ModbusSpec;
}

/** Slot for one connection, reused after reconnects. */
interface Slot {
  connection?: ModbusConnection;
  /** Earliest time of the first request on the connection. */
  settledAtMs: number;
  isBusy: boolean;
  /** Keeps the connection open for another request. */
  cancelClose?: () => void;
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
/** Time since its latest response in which a device may ignore one request without a pause. */
const WORKING_MS = 60_000;
/** Time without a request after which a poll has ended, for `close_after_poll`. */
const IDLE_MS = 50;

export class ModbusLine {
  readonly #name: string;
  readonly #clock: Clock;
  readonly #trouble: TroubleLog;
  readonly #address: ModbusAddress;
  readonly #users = new Set<LineUser>();
  readonly #slots: Slot[] = [];
  /** Requests that wait for a slot. */
  readonly #waiting: ((slot: Slot) => void)[] = [];
  /** Pauses of unresponsive devices by unit number, and the pause after failed connection attempts. */
  readonly #rests = new Map<number | 'line', Rest>();
  /** Times of the latest responses, by unit number. */
  readonly #respondedMs = new Map<number, number>();
  #closesAfterPoll = false;
  #pauseMs = 0;
  #settleMs = 0;
  /** Earliest time of the next request. */
  #freeAtMs = Number.NEGATIVE_INFINITY;

  constructor(address: ModbusAddress, clock: Clock, log: Logger) {
    this.#name = lineNameOf(address);
    this.#address = address;
    this.#clock = clock;
    this.#trouble = new TroubleLog(log, clock);
  }

  /** Adds a source, which uses the line until `leave`. */
  join(user: LineUser): void {
    this.#users.add(user);
    this.#applySettings();
  }

  /** Closes the connections if no other source uses the line. Resolves when they are closed. */
  async leave(user: LineUser): Promise<void> {
    this.#users.delete(user);
    this.#applySettings();
    if (this.#users.size === 0) await Promise.all(this.#slots.map(({ connection }) => connection?.close()));
  }

  #applySettings(): void {
    const specs = [...this.#users].map(({ spec }) => spec);
    const { transport } = this.#address;
    // A frame on a serial line is preceded by a silent interval of three and a half characters of eleven bits.
    const silenceMs = 'baud' in this.#address ? Math.max(2, Math.ceil((3.5 * 11 * 1000) / this.#address.baud)) : 0;
    this.#pauseMs = Math.max(silenceMs, ...specs.map(({ pauseMs }) => pauseMs));
    this.#settleMs = Math.max(0, ...specs.map(({ settleMs }) => settleMs));
    this.#closesAfterPoll = specs.some(({ closeAfterPoll }) => closeAfterPoll);
    // Connections beyond the maximum after a reload are reused until the line is closed.
    const count = transport === 'rtu' ? 1 : Math.max(1, ...specs.map(({ connections }) => connections));
    while (this.#slots.length < count) this.#slots.push({ isBusy: false, settledAtMs: 0 });
  }

  /**
   * Sends a request. Returns the data of the response. Rejects with a `ModbusError`, with the reason of the
   * signal, or with the error of `guard`, which is called immediately before the request is sent and throws if it must
   * no longer be sent. After an abort, the line still waits for the response to a read; a TCP connection is reset during
   * a write.
   */
  send(request: ModbusRequest, signal: AbortSignal, guard: () => void = () => {}): Promise<Buffer> {
    return raced(this.#sendInTurn(request, signal, guard), signal);
  }

  async #sendInTurn(request: ModbusRequest, signal: AbortSignal, guard: () => void) {
    const { unit, timeoutMs } = request.device;
    const free = this.#slots.find(({ isBusy }) => !isBusy);
    const slot = free ?? (await new Promise<Slot>((resolve) => this.#waiting.push(resolve)));
    slot.isBusy = true;
    slot.cancelClose?.();
    try {
      for (;;) {
        signal.throwIfAborted();
        this.#throwIfResting(unit);
        let hasWorked = false;
        try {
          const connection = await this.#connectionOf(slot);
          const settleMs = slot.settledAtMs - this.#clock.monotonicMs();
          if (settleMs > 0) await this.#clock.sleep(settleMs, signal);
          if (this.#pauseMs > 0) await this.#pause(signal);
          signal.throwIfAborted();
          hasWorked = connection.hasResponded;
          guard();
          const data = await connection.send(request, signal);
          this.#recordResponse(unit);
          return data;
        } catch (error) {
          if (!(error instanceof ModbusError)) throw error;
          // Retry once if the connection worked before, because devices close idle connections.
          if (error.failure === 'closed' && hasWorked) continue;
          this.#recordFailure(error, unit, timeoutMs);
          throw error;
        } finally {
          if (this.#pauseMs > 0) this.#freeAtMs = this.#clock.monotonicMs() + this.#pauseMs;
        }
      }
    } finally {
      this.#release(slot);
    }
  }

  /** Throws if the device or the line is paused, or no longer used by a source. */
  #throwIfResting(unit: number): void {
    if (this.#users.size === 0) throw new ModbusError('the source is stopping', 'closed');
    if (this.#rests.size === 0) return;
    const nowMs = this.#clock.monotonicMs();
    for (const rest of [this.#rests.get('line'), this.#rests.get(unit)]) {
      if (rest !== undefined && nowMs < rest.untilMs) throw rest.error.duringPause();
    }
  }

  async #connectionOf(slot: Slot): Promise<ModbusConnection> {
    if (slot.connection?.isOpen) return slot.connection;
    // A device may accept only one connection.
    await slot.connection?.close();
    slot.connection = await openConnection(this.#address, this.#clock);
    slot.settledAtMs = this.#clock.monotonicMs() + this.#settleMs;
    return slot.connection;
  }

  /** Waits until the next request may be sent, and reserves the time for it. */
  async #pause(signal: AbortSignal): Promise<void> {
    const clock = this.#clock;
    while (clock.monotonicMs() < this.#freeAtMs) await clock.sleep(this.#freeAtMs - clock.monotonicMs(), signal);
    this.#freeAtMs = clock.monotonicMs() + this.#pauseMs;
  }

  /** Ends the pauses of the line and of the device. */
  #recordResponse(unit: number): void {
    this.#respondedMs.set(unit, this.#clock.monotonicMs());
    if (this.#rests.size === 0) return;
    if (this.#rests.delete('line')) {
      this.#trouble.recovered('modbus.disconnected', { line: this.#name }, 'connection to the Modbus device restored');
    }
    if (this.#rests.delete(unit)) {
      this.#trouble.recovered('modbus.silent', this.#fieldsOf(unit), 'device connection restored', String(unit));
    }
  }

  /** Pauses the line if its host or port is unreachable, and otherwise an unresponsive device. */
  #recordFailure(error: ModbusError, unit: number, timeoutMs: number): void {
    if (error.failure === 'exception') this.#recordResponse(unit);
    if (!error.isUnreachable) return;
    const isLine = error.failure === 'closed';
    const key = isLine ? 'line' : unit;
    const backoff = isLine ? RECONNECT[this.#address.transport] : UNRESPONSIVE;
    const isSerial = this.#address.transport === 'rtu' || this.#address.framing !== undefined;
    // On a serial line, a late response could be mistaken for the response to the next request within the timeout.
    const floorMs = isLine ? MIN_REST_MS : Math.max(MIN_REST_MS, timeoutMs);
    const clock = this.#clock;
    const { failures = 0 } = this.#rests.get(key) ?? {};
    const nowMs = clock.monotonicMs();
    const respondedMs = this.#respondedMs.get(unit) ?? Number.NEGATIVE_INFINITY;
    const isFirst = !isLine && failures === 0 && nowMs - respondedMs < WORKING_MS;
    const isPaused = !isFirst || isSerial;
    const untilMs = nowMs + (isPaused ? fullJitterMs(failures, backoff, () => clock.random(), floorMs) : 0);
    this.#rests.set(key, { error, failures: failures + 1, untilMs });
    const { message, hint } = error;
    if (isLine) {
      const fields = { line: this.#name, error: message, hint };
      this.#trouble.report({ event: 'modbus.disconnected', ...fields }, 'failed to connect to the Modbus device');
    } else if (!isFirst) {
      const fields = { ...this.#fieldsOf(unit), error: message };
      this.#trouble.report({ event: 'modbus.silent', ...fields }, 'no response from Modbus device', String(unit));
    }
  }

  #fieldsOf(unit: number) {
    const names = [...this.#users].filter(({ spec }) => spec.unit === unit).map(({ name }) => name);
    return { source: [...new Set(names)].join(' '), line: this.#name, unit };
  }

  /** Passes the slot to the next request, or closes its connection if nothing follows. */
  #release(slot: Slot): void {
    const next = this.#waiting.shift();
    slot.isBusy = next !== undefined;
    next?.(slot);
    const close = () => void slot.connection?.close();
    if (next === undefined && this.#users.size === 0) close();
    else if (next === undefined && this.#closesAfterPoll) slot.cancelClose = this.#clock.after(IDLE_MS, close);
  }
}
