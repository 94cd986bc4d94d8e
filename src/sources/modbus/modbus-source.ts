import type { Clock } from '../../base/clock.ts';
import type { Source } from '../../config/tags.ts';
import type { TestedValue } from '../intake/arrivals.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState, TestContext } from '../source-kind.ts';
import { encodeRegister } from './encoding.ts';
import type { LineRules, ModbusLine, ModbusSpec } from './line.ts';
import { type JoinedLine, ModbusLines } from './lines.ts';
import { ModbusError } from './modbus-error.ts';
import { type ModbusValue, registerText } from './register.ts';
import type { Span } from './requests.ts';
import { REST_FLOOR_MS, Rest } from './rest.ts';
import { readRanges, scanModbus } from './scan.ts';
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

/** Tests a source without the agent, over its own connection. */
export async function testModbus({ source, points, clock, log, signal }: TestContext<ModbusSpec, ModbusValue>) {
  const { line, leave } = joinLine(new ModbusLines(clock, log), source, { connections: 1 });
  try {
    return await testPoints(points, line, source.spec, clock, signal);
  } finally {
    await leave();
  }
}

/** Scans a device without the agent, over its own connection. */
export async function* scanAlone(
  { source, clock, log, signal }: Omit<TestContext<ModbusSpec, ModbusValue>, 'points'>,
  what: readonly string[],
): AsyncGenerator<ScanStep> {
  const ranges = readRanges(what);
  const { line, leave } = joinLine(new ModbusLines(clock, log), source, { connections: 1 });
  try {
    yield* scanOn(line, source.spec, ranges, clock, signal);
  } finally {
    await leave();
  }
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
  #isResponding: boolean | undefined;
  #sinceMs: number;
  #errors = 0;
  #problem: ModbusError | undefined;

  constructor(context: Context, lines: ModbusLines) {
    const { source, points, gate, clock, log } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    this.#sinceMs = clock.monotonicMs();
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
      return new Poller({ source: source.name, points: group, gate, clock, log, read });
    });
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    await this.#joined.leave();
  }

  state(): SourceState {
    const late = this.#pollers.reduce((sum, poller) => sum + poller.stats.late, 0);
    const problem = this.#problem?.message ?? this.#unreadableText();
    return {
      connected: this.#isResponding ?? false,
      sinceMs: this.#sinceMs,
      ...(problem === undefined ? {} : { problem }),
      ...(this.#problem?.hint ? { hint: this.#problem.hint } : {}),
      errors: this.#errors,
      pollsLate: late,
    };
  }

  /** Reads over the open line; the requests share a queue with the polls. */
  test(signal: AbortSignal): Promise<TestedValue[]> {
    const { points, clock, source } = this.#context;
    return testPoints(points, this.#joined.line, source.spec, clock, signal);
  }

  async readOne(point: ModbusPoint, signal: AbortSignal): Promise<number> {
    const { clock, source } = this.#context;
    const [tested] = await testPoints([point], this.#joined.line, source.spec, clock, signal);
    if (tested !== undefined && 'raw' in tested) return Number(tested.raw);
    throw new ModbusError(tested?.problem ?? 'not read', 'exception', { hint: tested?.hint ?? '' });
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

  /** Scans over the open line; the requests share a queue with the polls. */
  scan(what: readonly string[], _waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, clock } = this.#context;
    return scanOn(this.#joined.line, source.spec, readRanges(what), clock, signal);
  }

  async #poll(due: readonly ModbusPoint[], health: PollHealth, signal: AbortSignal): Promise<void> {
    const { gate, clock } = this.#context;
    if (!health.rest.isOver(clock.monotonicMs())) {
      this.#errors++;
      for (const point of due) gate.recordFailure(point);
      return;
    }
    const endUse = this.#joined.line.use();
    let hasResponded = false;
    const invalid = new Map<ModbusPoint, ModbusError>();
    const readings = {
      value: (point: ModbusPoint, raw: number | string) => {
        hasResponded = true;
        gate.accept(point, raw);
        this.#recordReadable(point);
      },
      failed: (point: ModbusPoint, error: ModbusError) => {
        const isException = error.failure === 'exception';
        gate.recordFailure(point, isException ? error.message : undefined);
        if (error.failure === 'garbled') invalid.set(point, error);
        if (!isException) return;
        // An exception is also a response.
        hasResponded = true;
        this.#errors++;
        this.#recordUnreadable(point, error);
      },
      skipped: (point: ModbusPoint) => gate.recordFailure(point),
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
      this.#errors++;
      this.#setResponding(hasResponded && error.failure !== 'resting', error);
    } finally {
      endUse();
    }
  }

  /** Counts an invalid response, even if the request is repeated. */
  #countInvalid(error: unknown): never {
    if (error instanceof ModbusError && error.failure === 'garbled') this.#errors++;
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
    if (isResponding !== this.#isResponding) this.#sinceMs = this.#context.clock.monotonicMs();
    this.#isResponding = isResponding;
    this.#problem = problem;
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

function readerOn(line: ModbusLine, spec: ModbusSpec, clock: Clock): UnitReader<ModbusPoint> {
  return new UnitReader({ clock, request: requestsOn(line, spec), maxRegisters: spec.maxRegisters });
}

async function* scanOn(
  line: ModbusLine,
  spec: ModbusSpec,
  ranges: readonly Span[],
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<ScanStep> {
  const endUse = line.use();
  try {
    yield* scanModbus(requestsOn(line, spec), ranges, spec.maxRegisters, clock, signal);
  } finally {
    endUse();
  }
}

async function testPoints(
  points: readonly ModbusPoint[],
  line: ModbusLine,
  spec: ModbusSpec,
  clock: Clock,
  signal: AbortSignal,
): Promise<TestedValue[]> {
  const endUse = line.use();
  const tested = new Map<ModbusPoint, TestedValue>();
  const readings = {
    value: (point: ModbusPoint, raw: number | string) => tested.set(point, { point, raw, timeMs: clock.wallMs() }),
    failed: (point: ModbusPoint, { message, hint }: ModbusError) =>
      tested.set(point, { point, problem: message, ...(hint ? { hint } : {}) }),
    skipped: () => {},
  };
  try {
    await readerOn(line, spec, clock).read(points, readings, signal);
  } catch (error) {
    if (!(error instanceof ModbusError)) throw error;
  } finally {
    endUse();
  }
  return points.map((point) => tested.get(point) ?? { point, problem: 'not read' });
}
