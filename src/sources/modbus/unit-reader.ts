import type { Clock } from '../../base/clock.ts';
import { ModbusError } from './modbus-error.ts';
import { decodeBit, decodeRegister, decodeText, isBits, type ModbusRegister } from './register.ts';
import { halvesOf, planRequests, type ReadRequest, type RegisterPoint, RejectedRegisters } from './requests.ts';

interface UnitReaderOptions {
  /** Reads one range of registers; rejects with a `ModbusError`. */
  request(request: ReadRequest<unknown>, signal: AbortSignal): Promise<Uint8Array>;
  /** Maximum number of registers per request. */
  maxRegisters: number;
  clock: Clock;
}

/** Receiver of readings. */
export interface Readings<P> {
  /** Text of a string, otherwise a number. */
  value(point: P, raw: number | string): void;
  failed(point: P, error: ModbusError): void;
  /** Called for a point that is not requested, because the device rejected it recently. */
  skipped(point: P): void;
}

interface Plan<P> {
  points: readonly P[];
  requests: readonly ReadRequest<P>[];
  skipped: readonly P[];
}

/** Pauses before retries within one poll while a device is busy. */
const BUSY_PAUSES_MS = [100, 200, 400];
/**
 * Maximum number of attempts in case of line noise, without pauses between them. Each attempt over TCP requires a new
 * connection, so requests after one that failed are attempted once until the device sends a valid response.
 */
const GARBLED_TRIES = 3;

/**
 * Reads the registers of one device with as few requests as possible. Rejected requests are split in half until the
 * missing register is found, and the result is cached for a limited time (`RejectedRegisters`). Values read before the
 * device stops responding are accepted.
 */
export class UnitReader<P extends RegisterPoint> {
  readonly #rejected = new RejectedRegisters();
  readonly #options: UnitReaderOptions;
  /** Latest plan, if no register was rejected when it was made. */
  #plan: Plan<P> | undefined;
  /** Whether the latest request failed because all responses were invalid. */
  #isGarbled = false;

  constructor(options: UnitReaderOptions) {
    this.#options = options;
  }

  /**
   * Reads all points once. If the device is unreachable, reports a failure for each point that was not read and rejects
   * with a `ModbusError`.
   */
  async read(points: readonly P[], readings: Readings<P>, signal: AbortSignal): Promise<void> {
    const { requests, skipped } = this.#planOf(points);
    for (const point of skipped) readings.skipped(point);
    for (const [at, request] of requests.entries()) {
      try {
        await this.#readRequest(request, readings, signal);
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        for (const later of requests.slice(at + 1)) for (const point of later.points) readings.failed(point, error);
        throw error;
      }
    }
  }

  /** Reuses the plan of the previous poll unless the device has rejected registers. */
  #planOf(points: readonly P[]): Plan<P> {
    if (this.#rejected.isEmpty && isSame(points, this.#plan?.points)) return this.#plan!;
    const nowMs = this.#options.clock.monotonicMs();
    this.#rejected.removeExpiredCuts(nowMs);
    const requests = planRequests(points, this.#rejected, nowMs, this.#options.maxRegisters);
    const requested = new Set(requests.flatMap((request) => request.points));
    const plan = { points, requests, skipped: points.filter((point) => !requested.has(point)) };
    this.#plan = this.#rejected.isEmpty ? plan : undefined;
    return plan;
  }

  /** Returns whether the device accepted the request without splitting it. */
  async #readRequest(request: ReadRequest<P>, readings: Readings<P>, signal: AbortSignal): Promise<boolean> {
    let bytes: Uint8Array;
    try {
      bytes = await this.#request(request, signal);
    } catch (error) {
      if (!(error instanceof ModbusError)) throw error;
      if (error.isRefusal) {
        await this.#divide(request, error, readings, signal);
        return false;
      }
      for (const point of request.points) readings.failed(point, error);
      // A busy device or a noisy line still has a working connection, so other registers may be readable.
      if (error.isBusy || error.failure === 'garbled') return false;
      throw error;
    }
    this.#rejected.allow(request);
    for (const point of request.points) this.#decode(point, request, bytes, readings);
    return true;
  }

  #decode(point: P, request: ReadRequest<P>, bytes: Uint8Array, readings: Readings<P>): void {
    const { register } = point.spec;
    const offset = register.address - request.address;
    if (register.type === 'string') {
      readings.value(point, decodeText(bytes, offset, register));
      return;
    }
    const raw = isBits(register.table) ? decodeBit(bytes, offset) : decodeRegister(bytes, offset, register);
    if (Number.isFinite(raw)) readings.value(point, raw);
    else readings.failed(point, notReadable(register));
  }

  /** Searches for the register that the device rejects. */
  async #divide(
    request: ReadRequest<P>,
    error: ModbusError,
    readings: Readings<P>,
    signal: AbortSignal,
  ): Promise<void> {
    const nowMs = this.#options.clock.monotonicMs();
    const halves = halvesOf(request);
    // Splitting does not help if the device does not support the table.
    if (halves === undefined || error.exception === 1) {
      for (const point of request.points) {
        this.#rejected.reject(point.spec.register, error.exception ?? 0, nowMs);
        readings.failed(point, error);
      }
      return;
    }
    const [left, right] = halves;
    let isRead: boolean;
    try {
      isRead = await this.#readRequest(left, readings, signal);
    } catch (failure) {
      if (failure instanceof ModbusError) for (const point of right.points) readings.failed(point, failure);
      throw failure;
    }
    isRead = (await this.#readRequest(right, readings, signal)) && isRead;
    if (isRead) this.#rejected.cut(request.table, right.address, nowMs);
  }

  async #request(request: ReadRequest<P>, signal: AbortSignal): Promise<Uint8Array> {
    for (let tries = 1; ; tries++) {
      try {
        const bytes = await this.#options.request(request, signal);
        this.#isGarbled = false;
        return bytes;
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        if (error.failure === 'exception') this.#isGarbled = false;
        if (error.failure === 'garbled') {
          this.#isGarbled ||= tries >= GARBLED_TRIES;
          if (this.#isGarbled) throw error;
          continue;
        }
        const pauseMs = error.isBusy ? BUSY_PAUSES_MS[tries - 1] : undefined;
        if (pauseMs === undefined) throw error;
        await this.#options.clock.sleep(pauseMs, signal);
      }
    }
  }
}

function notReadable({ type }: ModbusRegister): ModbusError {
  const content = type === 'bcd16' || type === 'bcd32' ? 'BCD digits' : 'a number';
  return new ModbusError(`the register does not contain ${content}`, 'exception');
}

function isSame<P>(one: readonly P[], other: readonly P[] | undefined): boolean {
  return one.length === other?.length && one.every((point, at) => point === other[at]);
}
