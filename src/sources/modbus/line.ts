/**
 * The one way to the devices behind a host and port, or on a serial line: a queue of requests over one connection (or a few, where
 * the configuration says so), since many gateways take one connection and a serial line carries one frame.
 *
 * States: closed (nothing asked for yet, or the last connection ended), open, resting (a connection could not be made: everything asked
 * for meanwhile fails at once, and the next try comes by back-off), stopped.
 *
 * Invariants: a request waits for those before it and for no other; whoever reads asks for its next request when the last was answered,
 * so the queue holds one a reader and each has its turn. A device that hangs costs its neighbours one timeout a try: it rests by
 * itself, and what was asked of it meanwhile fails without touching the line. A crash leaves nothing: devices are only read.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../trouble-log.ts';
import { type ModbusAddress, type ModbusConnection, openConnection } from './connection.ts';
import { ModbusError } from './modbus-error.ts';
import type { Span } from './refused-registers.ts';
import { Rest } from './unit-rest.ts';

export interface LineOptions {
  address: ModbusAddress;
  clock: Clock;
  log: Logger;
  /** The connection before this one has to be closed first: a device may take one only. */
  after?: Promise<unknown>;
  open?: typeof openConnection;
}

export interface LineState {
  isOpen: boolean;
  /** By the monotonic clock: since when it is open, or is not. */
  sinceMs: number;
  error: ModbusError | undefined;
}

interface Job {
  unit: number;
  span: Span;
  timeoutMs: number;
  signal: AbortSignal | undefined;
  resolve(bytes: Uint8Array): void;
  reject(error: unknown): void;
}

/** A device, and the sources of tags.yaml that read it. */
interface Unit {
  rest: Rest;
  sources: string[];
}

/** One connection, over its lives. */
interface Slot {
  connection: ModbusConnection | undefined;
  isBusy: boolean;
  /** It has carried an answer since it was made. */
  isProven: boolean;
  /** Requests in a row that nothing came back to. */
  unanswered: number;
  freeAtMs: number;
}

/** A network comes back in its own time; an adapter is plugged in by somebody who looks at the screen. */
const RECONNECT = { tcp: { baseMs: 1_000, capMs: 30_000 }, rtu: { baseMs: 1_000, capMs: 5_000 } };
const REST_FLOOR_MS = 250;
/** A connection over which so many devices in a row said nothing is taken for dead. */
const MAX_UNANSWERED = 3;

export class ModbusLine {
  readonly name: string;
  readonly #options: LineOptions;
  readonly #trouble: TroubleLog;
  readonly #rest: Rest;
  readonly #units = new Map<number, Unit>();
  readonly #queue: Job[] = [];
  #slots: Slot[] = [];
  #opening: Promise<ModbusConnection> | undefined;
  #isOpen = false;
  #sinceMs: number;
  #isStopped = false;

  constructor(options: LineOptions) {
    const { address, clock, log } = options;
    this.#options = options;
    this.name = nameOf(address);
    this.#rest = new Rest(RECONNECT[address.transport]);
    this.#trouble = new TroubleLog(log, clock);
    this.#sinceMs = clock.monotonicMs();
  }

  /** A source will ask a device, over at least so many connections: the most that anyone on the line wants. */
  join(unit: number, source: string, connections = 1): void {
    const { sources } = this.#unit(unit);
    if (!sources.includes(source)) sources.push(source);
    const max = this.#options.address.transport === 'rtu' ? 1 : connections;
    while (this.#slots.length < max) {
      this.#slots.push({ connection: undefined, isBusy: false, isProven: false, unanswered: 0, freeAtMs: 0 });
    }
  }

  get state(): LineState {
    return { isOpen: this.#isOpen, sinceMs: this.#sinceMs, error: this.#rest.error };
  }

  /** What the device last failed with, or the way to it; `undefined` where it answers, or was not asked yet. */
  errorOf(unit: number): ModbusError | undefined {
    return this.#rest.error ?? this.#units.get(unit)?.rest.error;
  }

  /** The bytes of the answer. Rejects with a `ModbusError`, or with the signal's reason. */
  read(unit: number, span: Span, timeoutMs: number, signal?: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      // Who stops does not wait for a device; the line does, before its next request.
      const onAbort = () => reject(signal?.reason);
      const over = () => signal?.removeEventListener('abort', onAbort);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#queue.push({
        unit,
        span,
        timeoutMs,
        signal,
        resolve(bytes) {
          over();
          resolve(bytes);
        },
        reject(error) {
          over();
          reject(error);
        },
      });
      this.#next();
    });
  }

  /** Ends what waits and closes the connections; resolves when others may connect. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const job of this.#queue.splice(0)) job.reject(new ModbusError('the source stops', 'closed'));
    await this.#opening?.catch(() => {});
    await Promise.all(this.#slots.map((slot) => slot.connection?.close()));
  }

  #next(): void {
    for (const slot of this.#slots) {
      while (!slot.isBusy) {
        const job = this.#queue.shift();
        if (job === undefined) return;
        const error = this.#isOff(job);
        if (error !== undefined) job.reject(error);
        else void this.#serve(slot, job);
      }
    }
  }

  /** Why a request need not be sent. */
  #isOff({ unit, signal }: Job): unknown {
    const nowMs = this.#options.clock.monotonicMs();
    if (signal?.aborted) return signal.reason;
    if (this.#isStopped) return new ModbusError('the source stops', 'closed');
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
      job.resolve(await this.#ask(slot, job));
    } catch (error) {
      job.reject(error);
    } finally {
      slot.isBusy = false;
      this.#next();
    }
  }

  async #ask(slot: Slot, job: Job): Promise<Uint8Array> {
    for (;;) {
      const wasProven = slot.isProven && slot.connection?.isOpen === true;
      const connection = await this.#connectionOf(slot);
      await this.#quiet(slot, job.signal);
      try {
        const bytes = await connection.read(job.unit, job.span, job.timeoutMs);
        this.#answered(slot, job.unit);
        return bytes;
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        this.#take(error, slot, job);
        // Devices end connections that were quiet for a while: one that carried answers before deserves another try.
        if (error.failure !== 'closed' || !wasProven || this.#isStopped) throw error;
      } finally {
        slot.freeAtMs = this.#options.clock.monotonicMs() + this.#silenceMs;
      }
    }
  }

  /** A frame on a serial line begins after three and a half characters of silence. */
  get #silenceMs(): number {
    const { address } = this.#options;
    return address.transport === 'rtu' ? Math.max(2, Math.ceil((3.5 * 11 * 1000) / address.baud)) : 0;
  }

  async #quiet(slot: Slot, signal: AbortSignal | undefined): Promise<void> {
    const { clock } = this.#options;
    const waitMs = slot.freeAtMs - clock.monotonicMs();
    if (waitMs > 0) await clock.sleep(waitMs, signal);
  }

  async #connectionOf(slot: Slot): Promise<ModbusConnection> {
    if (slot.connection?.isOpen) return slot.connection;
    const { address, after, open = openConnection } = this.#options;
    await slot.connection?.close();
    await after?.catch(() => {});
    try {
      this.#opening = open(address, () => this.#closed());
      slot.connection = await this.#opening;
    } catch (error) {
      throw this.#cannotConnect(error as ModbusError);
    }
    if (this.#isStopped) {
      await slot.connection.close();
      throw new ModbusError('the source stops', 'closed');
    }
    Object.assign(slot, { isProven: false, unanswered: 0 });
    this.#say(true);
    return slot.connection;
  }

  #answered(slot: Slot, unit: number): void {
    slot.isProven = true;
    slot.unanswered = 0;
    this.#rest.answered();
    this.#unit(unit).rest.answered();
    this.#trouble.over('modbus.disconnected', { line: this.name }, 'a Modbus line carries answers again');
    this.#trouble.over('modbus.silent', this.#fieldsOf(unit), 'a Modbus device answers again', String(unit));
  }

  #take(error: ModbusError, slot: Slot, { unit, timeoutMs }: Job): void {
    const { address, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    switch (error.failure) {
      case 'exception':
        this.#answered(slot, unit);
        return;
      case 'silent': {
        // A late answer on a serial line cannot be told from that to the next request: it is waited out.
        const floorMs = address.transport === 'rtu' ? Math.max(REST_FLOOR_MS, timeoutMs) : REST_FLOOR_MS;
        this.#unit(unit).rest.failed(error, nowMs, () => clock.random(), floorMs);
        const fields = { ...this.#fieldsOf(unit), error: error.message };
        this.#trouble.again({ event: 'modbus.silent', ...fields }, 'a Modbus device does not answer', String(unit));
        // Its gateway answered for it.
        if (error.exception !== undefined) slot.unanswered = 0;
        else if (++slot.unanswered >= Math.min(this.#units.size, MAX_UNANSWERED)) this.#drop(slot);
        return;
      }
      case 'garbled':
        // Nobody knows where the next answer begins.
        this.#drop(slot);
        return;
      default:
        if (!slot.isProven) this.#cannotConnect(error);
        slot.isProven = false;
    }
  }

  /** The next request makes a new one. A serial line has none to end, and opening it anew resets some adapters. */
  #drop(slot: Slot): void {
    if (this.#options.address.transport === 'rtu') return;
    void slot.connection?.close();
    this.#closed();
  }

  #closed(): void {
    if (!this.#slots.some((slot) => slot.connection?.isOpen)) this.#say(false);
  }

  #cannotConnect(error: ModbusError): ModbusError {
    const { clock } = this.#options;
    this.#say(false);
    this.#rest.failed(error, clock.monotonicMs(), () => clock.random(), REST_FLOOR_MS);
    const fields = { line: this.name, error: error.message, hint: error.hint };
    this.#trouble.again({ event: 'modbus.disconnected', ...fields }, 'a Modbus line cannot be used');
    return error;
  }

  #say(isOpen: boolean): void {
    if (isOpen === this.#isOpen) return;
    this.#isOpen = isOpen;
    this.#sinceMs = this.#options.clock.monotonicMs();
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
    return { source: this.#unit(unit).sources.join(' '), line: this.name, unit };
  }
}

export function nameOf(address: ModbusAddress): string {
  return address.transport === 'tcp' ? `${address.host}:${address.port}` : address.path;
}
