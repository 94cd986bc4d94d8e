import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { BlockReader, type ModbusPoint, readingOf } from './block-reader.ts';
import { readRequest, writeRequests } from './frames.ts';
import { type LineUser, ModbusLine } from './line.ts';
import type { ModbusSpec } from './line-spec.ts';
import { ILLEGAL_FUNCTION, ModbusError } from './modbus-error.ts';
import { encode, type ModbusValue, type Span, sunSpecCodes } from './register.ts';

type Context = SourceContext<ModbusSpec, ModbusValue>;

/** Pauses before retries within one poll while a device is busy. */
const BUSY_PAUSES_MS = [100, 200, 400];
/** Maximum number of attempts within one poll in case of invalid responses, for example because of line noise. */
const GARBLED_TRIES = 3;

/**
 * A running Modbus source. One poller per poll interval reads the values with this interval, so that many slow values
 * do not delay fast ones.
 */
export class ModbusSource implements RunningSource, LineUser {
  readonly name: string;
  readonly spec: ModbusSpec;
  readonly #context: Context;
  readonly #line: ModbusLine;
  readonly #readers: BlockReader[] = [];
  readonly #pollers: Poller<ModbusValue>[] = [];
  /** Time of the latest poll that ended with an unresponsive device. */
  #unansweredMs = Number.NEGATIVE_INFINITY;

  constructor(context: Context) {
    const { source, shared, status, clock, log } = context;
    const { name, spec } = source;
    const { maxRegisters, isSunSpec } = spec;
    const points = context.points.map((point) => withNoValueCodes(point, isSunSpec));
    this.name = name;
    this.spec = spec;
    this.#context = context;
    const { address } = spec;
    this.#line = shared.get(`modbus ${JSON.stringify(address)}`, () => new ModbusLine(address, clock, log));
    this.#line.join(this);
    status.disconnect();
    const trouble = new TroubleLog(log, clock, 'values');
    for (const group of Map.groupBy(points, ({ everyMs }) => everyMs).values()) {
      const reader = new BlockReader({ source: name, points: group, maxRegisters, clock, trouble });
      this.#readers.push(reader);
      // The line reports an unresponsive device, and `settle` is configured.
      const isDelayExpected = (startedMs: number) => Math.max(this.#line.settledMs, this.#unansweredMs) >= startedMs;
      const read = (_: unknown, signal: AbortSignal) => this.#poll(reader, signal);
      this.#pollers.push(new Poller({ ...context, points: group, read, isDelayExpected }));
    }
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    await this.#line.leave(this);
  }

  async readOne(point: ModbusPoint, signal: AbortSignal): Promise<number> {
    const { register } = point.spec;
    const data = await this.#read(register, signal);
    if (data instanceof ModbusError) throw data;
    const reading = readingOf(point, register.address, data);
    if ('problem' in reading) throw new ModbusError(reading.problem, 'exception');
    return Number(reading.raw);
  }

  /** Writes with the function for one register or coil, or with that for several if the device does not support it. */
  async write({ spec: { register } }: ModbusPoint, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    const [request, other] = writeRequests(this.spec.unit, register.address, encode(raw, register)!);
    try {
      await this.#line.send(this, request, signal, guard);
    } catch (error) {
      if (other === undefined || (error as ModbusError).exception !== ILLEGAL_FUNCTION) throw error;
      await this.#line.send(this, other, signal, guard);
    }
  }

  async #poll(reader: BlockReader, signal: AbortSignal): Promise<Reading[]> {
    const { readings, hasResponded, problem } = await reader.poll((span) => this.#read(span, signal));
    // Nothing is known about the device if no register was due.
    if (!hasResponded && problem === undefined) return readings;
    const { status, clock } = this.#context;
    if (hasResponded) status.connect();
    else status.disconnect();
    if (problem !== undefined) this.#unansweredMs = clock.monotonicMs();
    const [first, ...others] = this.#readers.flatMap((one) => one.failures());
    const more = others.length > 0 ? ` and ${others.length} more` : '';
    const of = first && `${first.point.name} (${first.register})${more}: ${first.error.message}`;
    status.problem = problem?.message ?? of;
    status.hint = (problem ?? first?.error)?.hint;
    return readings;
  }

  /**
   * Reads registers, repeatedly if the device is busy or its response is invalid. Returns the error of the final
   * attempt. Rejects only if the signal aborts.
   */
  async #read(span: Span, signal: AbortSignal): Promise<Buffer | ModbusError> {
    const { status, clock } = this.#context;
    const request = readRequest(this.spec.unit, span);
    for (let tries = 1; ; tries++) {
      const response = await this.#line.send(this, request, signal).catch((error: unknown) => {
        if (error instanceof ModbusError) return error;
        throw error;
      });
      const error = response instanceof ModbusError ? response : undefined;
      if (error !== undefined) status.errors++;
      const pauseMs = error?.isBusy ? BUSY_PAUSES_MS[tries - 1] : undefined;
      if (pauseMs !== undefined) await clock.sleep(pauseMs, signal);
      else if (error?.failure !== 'garbled' || tries >= GARBLED_TRIES) return response;
    }
  }
}

/** Adds the SunSpec codes. The codes of a bit value apply to the entire register. */
function withNoValueCodes(point: ModbusPoint, isSunSpec = false): ModbusPoint {
  const { shaping, spec } = point;
  const { noValue = isSunSpec ? sunSpecCodes(spec.register) : [], ...others } = shaping;
  if (noValue.length === 0) return point;
  if (spec.register.bits === undefined) return { ...point, shaping: { ...others, noValue } };
  return { ...point, shaping: others, spec: { ...spec, noValueWords: noValue as readonly number[] } };
}
