import type { Clock } from '../../base/clock.ts';
import { decodeBit, decodeRegister } from './decode.ts';
import { ModbusError } from './modbus-error.ts';
import { RefusedRegisters } from './refused-registers.ts';
import { halvesOf, planRequests, type ReadRequest, type RegisterPoint } from './requests.ts';

export interface UnitReaderOptions {
  /** Reads one run of registers; rejects with a `ModbusError`. */
  ask(request: ReadRequest<unknown>, signal: AbortSignal): Promise<Uint8Array>;
  clock: Clock;
}

/** What becomes of a reading. */
export interface Readings<P> {
  value(point: P, raw: number): void;
  failed(point: P, error: ModbusError): void;
  /** Not asked for: the device refused it lately. */
  skipped(point: P): void;
}

interface Plan<P> {
  points: readonly P[];
  requests: readonly ReadRequest<P>[];
  skipped: readonly P[];
}

/** A device that is busy is asked again after these pauses, within the poll. */
const BUSY_PAUSES_MS = [100, 200, 400];
/** Noise: at once. */
const GARBLED_TRIES = 3;

/**
 * Reads the registers of one device: few requests, halved where the device refuses one, until the register that it does not have
 * stands alone; what was learned lasts for a while (`RefusedRegisters`). What the device answered so far counts even when it falls
 * silent in the middle.
 */
export class UnitReader<P extends RegisterPoint> {
  readonly refused = new RefusedRegisters();
  readonly #options: UnitReaderOptions;
  /** The last one that nothing was left out of. */
  #plan: Plan<P> | undefined;

  constructor(options: UnitReaderOptions) {
    this.#options = options;
  }

  /** Once. Rejects with a `ModbusError` where the device cannot be reached, after telling it of each point that was not read. */
  async read(points: readonly P[], readings: Readings<P>, signal: AbortSignal): Promise<void> {
    const { requests, skipped } = this.#planOf(points);
    for (const point of skipped) readings.skipped(point);
    for (const [at, request] of requests.entries()) {
      try {
        await this.#take(request, readings, signal);
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        for (const left of requests.slice(at + 1)) for (const point of left.points) readings.failed(point, error);
        throw error;
      }
    }
  }

  /** A poll asks for what the last one asked for, unless the device refused something. */
  #planOf(points: readonly P[]): Plan<P> {
    if (this.refused.isEmpty && isSame(points, this.#plan?.points)) return this.#plan!;
    const nowMs = this.#options.clock.monotonicMs();
    this.refused.forgetOldCuts(nowMs);
    const requests = planRequests(points, this.refused, nowMs);
    const asked = new Set(requests.flatMap((request) => request.points));
    const plan = { points, requests, skipped: points.filter((point) => !asked.has(point)) };
    this.#plan = this.refused.isEmpty ? plan : undefined;
    return plan;
  }

  /** Gives whether the device took the request as it was. */
  async #take(request: ReadRequest<P>, readings: Readings<P>, signal: AbortSignal): Promise<boolean> {
    let bytes: Uint8Array;
    try {
      bytes = await this.#ask(request, signal);
    } catch (error) {
      if (!(error instanceof ModbusError)) throw error;
      if (error.isRefusal) {
        await this.#divide(request, error, readings, signal);
        return false;
      }
      for (const point of request.points) readings.failed(point, error);
      // Busy or noisy, it is there: the other registers may be had.
      if (error.isBusy || error.failure === 'garbled') return false;
      throw error;
    }
    this.refused.allow(request);
    for (const point of request.points) this.#decode(point, request, bytes, readings);
    return true;
  }

  #decode(point: P, request: ReadRequest<P>, bytes: Uint8Array, readings: Readings<P>): void {
    const { register } = point.spec;
    const offset = register.address - request.address;
    const isBits = register.table === 'coil' || register.table === 'discrete';
    const raw = isBits ? decodeBit(bytes, offset) : decodeRegister(bytes, offset, register);
    if (Number.isFinite(raw)) readings.value(point, raw);
    else readings.failed(point, new ModbusError('it holds no number', 'exception'));
  }

  /** Looks for the register that the device refuses. */
  async #divide(
    request: ReadRequest<P>,
    error: ModbusError,
    readings: Readings<P>,
    signal: AbortSignal,
  ): Promise<void> {
    const nowMs = this.#options.clock.monotonicMs();
    const halves = halvesOf(request);
    // A table that the device does not know has no halves that it does.
    if (halves === undefined || error.exception === 1) {
      for (const point of request.points) {
        this.refused.refuse(point.spec.register, error.exception ?? 0, nowMs);
        readings.failed(point, error);
      }
      return;
    }
    const [left, right] = halves;
    let taken: boolean;
    try {
      taken = await this.#take(left, readings, signal);
    } catch (failure) {
      if (failure instanceof ModbusError) for (const point of right.points) readings.failed(point, failure);
      throw failure;
    }
    taken = (await this.#take(right, readings, signal)) && taken;
    if (taken) this.refused.cut(request.table, right.address, nowMs);
  }

  async #ask(request: ReadRequest<P>, signal: AbortSignal): Promise<Uint8Array> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#options.ask(request, signal);
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        const pauseMs = error.isBusy ? BUSY_PAUSES_MS[tries - 1] : error.failure === 'garbled' ? 0 : undefined;
        if (pauseMs === undefined || (pauseMs === 0 && tries >= GARBLED_TRIES)) throw error;
        await this.#options.clock.sleep(pauseMs, signal);
      }
    }
  }
}

function isSame<P>(one: readonly P[], other: readonly P[] | undefined): boolean {
  return one.length === other?.length && one.every((point, at) => point === other[at]);
}
