import type { Clock } from '../../base/clock.ts';
import type { TestedValue } from '../arrivals.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState, TestContext } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { type JoinedLine, ModbusLines } from './lines.ts';
import { ModbusError } from './modbus-error.ts';
import type { ModbusSpec, ModbusValue } from './modbus-spec.ts';
import { registerText } from './register.ts';
import { readRanges, scanModbus } from './scan.ts';
import { UnitReader } from './unit-reader.ts';

type ModbusPoint = Point<ModbusValue>;
type Context = SourceContext<ModbusSpec, ModbusValue>;

/** The lines are those of the process: sources share them. */
export function openModbus(context: Context): ModbusSource {
  return new ModbusSource(
    context,
    context.shared.get('modbus', () => new ModbusLines(context.clock, context.log)),
  );
}

/** Without a daemon: opens the device for itself. */
export async function testModbus({ source, points, clock, log, signal }: TestContext<ModbusSpec, ModbusValue>) {
  const { address, unit } = source.spec;
  const { line, leave } = new ModbusLines(clock, log).join({ source: source.name, address, unit, connections: 1 });
  try {
    return await testPoints(points, readerOn(line, source.spec, clock), clock, signal);
  } finally {
    await leave();
  }
}

/** Without a daemon: opens the device for itself. */
export async function* scanAlone(
  { source, clock, log, signal }: Omit<TestContext<ModbusSpec, ModbusValue>, 'points'>,
  what: readonly string[],
): AsyncGenerator<ScanStep> {
  const ranges = readRanges(what);
  const { address, unit, timeoutMs } = source.spec;
  const { line, leave } = new ModbusLines(clock, log).join({ source: source.name, address, unit, connections: 1 });
  try {
    yield* scanModbus((span, cut) => line.read(unit, span, timeoutMs, cut), ranges, clock, signal);
  } finally {
    await leave();
  }
}

/**
 * One Modbus device at work: what is read equally often is read together, by a poller of its own, so that many slow values do not
 * make a quick one late.
 */
export class ModbusSource implements RunningSource {
  readonly #context: Context;
  readonly #trouble: TroubleLog;
  readonly #joined: JoinedLine;
  readonly #reader: UnitReader<ModbusPoint>;
  readonly #pollers: Poller<ModbusValue>[];
  /** Points that the device answers and does not give. */
  readonly #unreadable = new Map<ModbusPoint, ModbusError>();
  #answers: boolean | undefined;
  #sinceMs: number;
  #errors = 0;
  #problem: ModbusError | undefined;

  constructor(context: Context, lines: ModbusLines) {
    const { source, points, gate, clock, log } = context;
    const { address, unit, connections } = source.spec;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock);
    this.#sinceMs = clock.monotonicMs();
    this.#joined = lines.join({ source: source.name, address, unit, connections });
    this.#reader = readerOn(this.#joined.line, source.spec, clock);
    const read = (due: readonly ModbusPoint[], signal: AbortSignal) => this.#poll(due, signal);
    this.#pollers = [...Map.groupBy(points, (point) => point.everyMs).values()].map(
      (equal) => new Poller({ source: source.name, points: equal, gate, clock, log, read }),
    );
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
      connected: this.#answers ?? false,
      sinceMs: this.#sinceMs,
      ...(problem === undefined ? {} : { problem }),
      ...(this.#problem?.hint ? { hint: this.#problem.hint } : {}),
      errors: this.#errors,
      pollsLate: late,
    };
  }

  /** Over the line that is open, in turn with the polls. */
  test(signal: AbortSignal): Promise<TestedValue[]> {
    const { points, clock, source } = this.#context;
    return testPoints(points, readerOn(this.#joined.line, source.spec, clock), clock, signal);
  }

  /** In turn with the polls. */
  scan(what: readonly string[], _waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, clock } = this.#context;
    const { unit, timeoutMs } = source.spec;
    const { line } = this.#joined;
    return scanModbus((span, cut) => line.read(unit, span, timeoutMs, cut), readRanges(what), clock, signal);
  }

  async #poll(due: readonly ModbusPoint[], signal: AbortSignal): Promise<void> {
    const { gate } = this.#context;
    let answers = false;
    const refused: ModbusPoint[] = [];
    try {
      const readings = {
        value: (point: ModbusPoint, raw: number) => {
          answers = true;
          gate.take(point, raw);
          this.#readable(point);
        },
        failed: (point: ModbusPoint, error: ModbusError) => {
          const isRefused = error.failure === 'exception';
          gate.fail(point, isRefused ? error.message : undefined);
          if (!isRefused) return;
          this.#cannotRead(point, error);
          refused.push(point);
        },
        skipped: (point: ModbusPoint) => gate.fail(point),
      };
      await this.#reader.read(due, readings, signal);
      // Refusing is answering.
      this.#answer(true, undefined);
    } catch (error) {
      if (signal.aborted || !(error instanceof ModbusError)) throw error;
      // What the device gave before it fell silent is taken; the line has said what is wrong.
      this.#errors++;
      this.#answer(answers && error.failure !== 'resting', error);
    } finally {
      this.#sayUnreadable(refused);
    }
  }

  #answer(answers: boolean, problem: ModbusError | undefined): void {
    if (answers !== this.#answers) this.#sinceMs = this.#context.clock.monotonicMs();
    this.#answers = answers;
    this.#problem = problem;
  }

  #readable(point: ModbusPoint): void {
    const error = this.#unreadable.get(point);
    if (error === undefined) return;
    this.#unreadable.delete(point);
    if (this.#unreadableFor(error) > 0) return;
    const fields = { source: this.#context.source.name, value: point.name };
    this.#trouble.over('modbus.unreadable', fields, 'a register can be read again', error.message);
  }

  #cannotRead(point: ModbusPoint, error: ModbusError): void {
    if (this.#unreadable.get(point)?.message !== error.message) this.#readable(point);
    this.#unreadable.set(point, error);
    this.#errors++;
  }

  /** One line for each answer of the device, however many registers it is for. */
  #sayUnreadable(points: readonly ModbusPoint[]): void {
    const first = new Map(points.toReversed().map((point) => [this.#unreadable.get(point)?.message, point]));
    for (const point of first.values()) {
      const error = this.#unreadable.get(point);
      if (error === undefined) continue;
      const register = registerText(point.spec.register);
      const of = { source: this.#context.source.name, value: point.name, register, error: error.message };
      const trouble = { event: 'modbus.unreadable', ...of, values: this.#unreadableFor(error) };
      this.#trouble.again(trouble, 'a register could not be read', error.message);
    }
  }

  #unreadableFor({ message }: ModbusError): number {
    return [...this.#unreadable.values()].filter((error) => error.message === message).length;
  }

  #unreadableText(): string | undefined {
    const [first] = this.#unreadable;
    if (first === undefined) return undefined;
    const [point, error] = first;
    const more = this.#unreadable.size > 1 ? ` and ${this.#unreadable.size - 1} more` : '';
    return `${point.name} (${registerText(point.spec.register)})${more}: ${error.message}`;
  }
}

function readerOn(line: JoinedLine['line'], { unit, timeoutMs }: ModbusSpec, clock: Clock): UnitReader<ModbusPoint> {
  return new UnitReader({ clock, ask: (request, signal) => line.read(unit, request, timeoutMs, signal) });
}

async function testPoints(
  points: readonly ModbusPoint[],
  reader: UnitReader<ModbusPoint>,
  clock: Clock,
  signal: AbortSignal,
): Promise<TestedValue[]> {
  const tested = new Map<ModbusPoint, TestedValue>();
  const readings = {
    value: (point: ModbusPoint, raw: number) => tested.set(point, { point, raw, timeMs: clock.wallMs() }),
    failed: (point: ModbusPoint, { message, hint }: ModbusError) =>
      tested.set(point, { point, problem: message, ...(hint ? { hint } : {}) }),
    skipped: () => {},
  };
  await reader.read(points, readings, signal).catch((error: unknown) => {
    if (!(error instanceof ModbusError)) throw error;
  });
  return points.map((point) => tested.get(point) ?? { point, problem: 'it was not read' });
}
