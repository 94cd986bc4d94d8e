import type { Source } from '../../config/tags.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { encodeRegister } from './encoding.ts';
import type { LineRules, ModbusLine, ModbusSpec } from './line.ts';
import { type JoinedLine, ModbusLines } from './lines.ts';
import { ModbusError } from './modbus-error.ts';
import { type ModbusValue, registerText } from './register.ts';
import type { Span } from './requests.ts';
import { REST_FLOOR_MS, Rest } from './rest.ts';
import { UnitReader } from './unit-reader.ts';

type ModbusPoint = Point<ModbusValue>;
type Context = SourceContext<ModbusSpec, ModbusValue>;

/**
 * Backoff and log state of the registers with one poll interval. They are paused while the device sends only invalid
 * responses for them, because each one closes the connection. Registers with other intervals may still be readable.
 */
interface PollHealth {
  rest: Rest;
  trouble: TroubleLog;
}

/** Opens a source on the process-wide shared lines. */
export function openModbus(context: Context): ModbusSource {
  return new ModbusSource(
    context,
    context.shared.get('modbus', () => new ModbusLines(context.clock, context.log)),
  );
}

function joinLine(lines: ModbusLines, { name, spec }: Source<ModbusSpec>, rules: Partial<LineRules> = {}): JoinedLine {
  return lines.join({ source: name, ...spec, ...rules });
}

/**
 * A running Modbus source. One poller per poll interval reads the values with this interval, so that many slow values
 * do not delay fast ones.
 */
export class ModbusSource implements RunningSource {
  readonly #context: Context;
  readonly #trouble: TroubleLog;
  readonly #joined: JoinedLine;
  readonly #reader: UnitReader<ModbusPoint>;
  readonly #pollers: Poller<ModbusValue>[];
  /** Points for which the device returns an error or an invalid response. */
  readonly #unreadable = new Map<ModbusPoint, ModbusError>();

  constructor(context: Context, lines: ModbusLines) {
    const { source, points, clock, log } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    context.status.disconnect();
    this.#joined = joinLine(lines, source);
    const request = requestsOn(this.#joined.line, source.spec);
    this.#reader = new UnitReader({
      clock,
      maxRegisters: source.spec.maxRegisters,
      request: (span, signal) => request(span, signal).catch((error) => this.#countInvalid(error)),
    });
    this.#pollers = [...Map.groupBy(points, (point) => point.everyMs).values()].map((group) => {
      const health = { rest: new Rest(), trouble: new TroubleLog(log, clock) };
      const read = (due: readonly ModbusPoint[], signal: AbortSignal) => this.#poll(due, health, signal);
      return new Poller({ ...context, points: group, read });
    });
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    await this.#joined.leave();
  }

  async readOne(point: ModbusPoint, signal: AbortSignal): Promise<number> {
    const { clock, source } = this.#context;
    const { line } = this.#joined;
    const reader = new UnitReader<ModbusPoint>({
      clock,
      request: requestsOn(line, source.spec),
      maxRegisters: source.spec.maxRegisters,
    });
    const endUse = line.use();
    let result: number | ModbusError | undefined;
    const readings = {
      value: (_: ModbusPoint, raw: number | string) => {
        result = Number(raw);
      },
      failed: (_: ModbusPoint, error: ModbusError) => {
        result = error;
      },
      skipped: () => {},
    };
    try {
      await reader.read([point], readings, signal);
    } finally {
      endUse();
    }
    if (typeof result === 'number') return result;
    throw result ?? new ModbusError('not read', 'exception', {});
  }

  async write({ spec }: ModbusPoint, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    const { unit, timeoutMs } = this.#context.source.spec;
    const { line } = this.#joined;
    const { address } = spec.register;
    const endUse = line.use();
    try {
      await line.write(unit, { address, written: encodeRegister(raw, spec.register)! }, timeoutMs, guard, signal);
    } finally {
      endUse();
    }
  }

  async #poll(due: readonly ModbusPoint[], health: PollHealth, signal: AbortSignal): Promise<Reading[]> {
    const { status, clock } = this.#context;
    const read: Reading[] = [];
    if (!health.rest.isOver(clock.monotonicMs())) {
      status.errors++;
      return due.map((point) => ({ point, failure: undefined }));
    }
    const endUse = this.#joined.line.use();
    let hasResponded = false;
    const invalid = new Map<ModbusPoint, ModbusError>();
    const readings = {
      value: (point: ModbusPoint, raw: number | string) => {
        hasResponded = true;
        read.push({ point, raw });
        this.#recordReadable(point);
      },
      failed: (point: ModbusPoint, error: ModbusError) => {
        const isException = error.failure === 'exception';
        read.push({ point, failure: isException ? error.message : undefined });
        if (error.failure === 'garbled') invalid.set(point, error);
        if (!isException) return;
        // An exception is also a response.
        hasResponded = true;
        status.errors++;
        this.#recordUnreadable(point, error);
      },
      skipped: (point: ModbusPoint) => read.push({ point, failure: undefined }),
    };
    try {
      await this.#reader.read(due, readings, signal);
      const [first] = invalid.values();
      if (first === undefined || hasResponded) {
        for (const [point, error] of invalid) this.#recordUnreadable(point, error);
        this.#recordValid(health);
        this.#setResponding(true, undefined);
      } else {
        for (const [point, error] of invalid) this.#unreadable.set(point, error);
        this.#recordInvalid(health, first);
        this.#setResponding(false, first);
      }
    } catch (error) {
      if (signal.aborted || !(error instanceof ModbusError)) throw error;
      // Values read before the device stopped responding have been accepted, and the line has logged the failure.
      status.errors++;
      this.#setResponding(hasResponded && error.failure !== 'resting', error);
    } finally {
      endUse();
    }
    return read;
  }

  /** Counts an invalid response, even if the request is repeated. */
  #countInvalid(error: unknown): never {
    if (error instanceof ModbusError && error.failure === 'garbled') this.#context.status.errors++;
    throw error;
  }

  #recordValid({ rest, trouble }: PollHealth): void {
    rest.recordResponse();
    const { name, spec } = this.#context.source;
    trouble.recovered('modbus.invalid_response', { source: name, unit: spec.unit }, 'valid responses restored');
  }

  #recordInvalid({ rest, trouble }: PollHealth, error: ModbusError): void {
    const { clock, source } = this.#context;
    rest.recordFailure(error, clock.monotonicMs(), () => clock.random(), REST_FLOOR_MS);
    const fields = { source: source.name, unit: source.spec.unit, error: error.message, hint: error.hint };
    trouble.report({ event: 'modbus.invalid_response', ...fields }, 'invalid responses from the Modbus device');
  }

  #setResponding(isResponding: boolean, problem: ModbusError | undefined): void {
    const { status } = this.#context;
    const text = problem?.message ?? this.#unreadableText();
    if (isResponding) status.connect();
    else status.disconnect();
    status.problem = text;
    status.hint = problem?.hint || undefined;
  }

  #recordReadable(point: ModbusPoint): void {
    if (!this.#unreadable.delete(point)) return;
    this.#trouble.recovered('modbus.unreadable', this.#fieldsOf(point), 'register is readable again', point.name);
  }

  #recordUnreadable(point: ModbusPoint, error: ModbusError): void {
    this.#unreadable.set(point, error);
    const trouble = { event: 'modbus.unreadable', ...this.#fieldsOf(point), error: error.message };
    this.#trouble.report(trouble, 'failed to read register', point.name);
  }

  #fieldsOf({ name, spec }: ModbusPoint) {
    return { source: this.#context.source.name, value: name, register: registerText(spec.register) };
  }

  #unreadableText(): string | undefined {
    const [first] = this.#unreadable;
    if (first === undefined) return undefined;
    const [point, error] = first;
    const more = this.#unreadable.size > 1 ? ` and ${this.#unreadable.size - 1} more` : '';
    return `${point.name} (${registerText(point.spec.register)})${more}: ${error.message}`;
  }
}

function requestsOn(line: ModbusLine, { unit, timeoutMs }: ModbusSpec) {
  return (span: Span, signal: AbortSignal) => line.read(unit, span, timeoutMs, signal);
}
