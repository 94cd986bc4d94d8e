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

/** Maximum number of attempts within one poll if a device is busy, or its response is invalid because of line noise. */
const MAX_TRIES = 3;
const BUSY_PAUSE_MS = 200;

/** A running Modbus source. Each poll interval has its own reader, so intervals do not delay each other. */
export class ModbusSource implements RunningSource, LineUser {
  readonly name: string;
  readonly spec: ModbusSpec;
  readonly #context: Context;
  readonly #line: ModbusLine;
  /** By poll interval. */
  readonly #readers = new Map<number, BlockReader>();
  readonly #poller: Poller<ModbusValue>;

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
    for (const [everyMs, group] of Map.groupBy(points, (point) => point.everyMs)) {
      const reader = new BlockReader({ source: name, points: group, maxRegisters, clock, trouble });
      this.#readers.set(everyMs, reader);
    }
    this.#poller = new Poller({
      ...context,
      points,
      read: ([first], signal) => this.#poll(this.#readers.get(first!.everyMs)!, signal),
    });
  }

  start(): void {
    this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
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
    const [request, other] = writeRequests(this.spec, register.address, encode(raw, register)!);
    try {
      await this.#line.send(request, signal, guard);
    } catch (error) {
      if (other === undefined || (error as ModbusError).exception !== ILLEGAL_FUNCTION) throw error;
      await this.#line.send(other, signal, guard);
    }
  }

  async #poll(reader: BlockReader, signal: AbortSignal): Promise<Reading[]> {
    const { readings, hasResponded, problem } = await reader.poll((span) => this.#read(span, signal));
    // Nothing is known about the device if no register was due.
    if (!hasResponded && problem === undefined) return readings;
    const { status } = this.#context;
    if (hasResponded) status.connect();
    else status.disconnect();
    const [first, ...others] = [...this.#readers.values()].flatMap((reader) => reader.failures());
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
    const request = readRequest(this.spec, span);
    for (let tries = 1; ; tries++) {
      try {
        return await this.#line.send(request, signal);
      } catch (error) {
        if (!(error instanceof ModbusError)) throw error;
        status.errors++;
        if (tries >= MAX_TRIES || !(error.isBusy || error.failure === 'garbled')) return error;
        if (error.isBusy) await clock.sleep(BUSY_PAUSE_MS, signal);
      }
    }
  }
}

/** Adds the SunSpec codes. The codes of a bit value apply to the entire register. */
function withNoValueCodes(point: ModbusPoint, isSunSpec: boolean): ModbusPoint {
  const { shaping, spec } = point;
  const { noValue = isSunSpec ? sunSpecCodes(spec.register) : [], ...others } = shaping;
  if (noValue.length === 0) return point;
  if (spec.register.bits === undefined) return { ...point, shaping: { ...others, noValue } };
  return { ...point, shaping: others, spec: { ...spec, noValueWords: noValue as readonly number[] } };
}
