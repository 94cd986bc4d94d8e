import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { BlockReader, type ModbusPoint, type Poll, readingOf, readPatiently } from './block-reader.ts';
import { readRequest, writeRequests } from './frames.ts';
import { joinLine, type ModbusLine, type ModbusLines, type ModbusSpec } from './line.ts';
import { ModbusError } from './modbus-error.ts';
import { encode, type ModbusValue, registerText, type Span } from './register.ts';

type Context = SourceContext<ModbusSpec, ModbusValue>;

/**
 * A running Modbus source. One poller per poll interval reads the values with this interval, so that many slow values
 * do not delay fast ones.
 */
export class ModbusSource implements RunningSource {
  readonly #context: Context;
  /** Identifies this instance on the line, because a test joins the line with the same configuration. */
  readonly #member: Context['source'];
  readonly #line: ModbusLine;
  readonly #readers: BlockReader[] = [];
  readonly #pollers: Poller<ModbusValue>[] = [];

  constructor(context: Context) {
    const { source, points, shared, status, clock, log } = context;
    const { name, spec } = source;
    const { maxRegisters } = spec;
    this.#context = context;
    this.#member = { ...source };
    this.#line = joinLine(
      shared.get('modbus', (): ModbusLines => new Map()),
      this.#member,
      clock,
      log,
    );
    status.disconnect();
    const trouble = new TroubleLog(log, clock, 'values');
    for (const group of Map.groupBy(points, ({ everyMs }) => everyMs).values()) {
      const reader = new BlockReader({ source: name, points: group, maxRegisters, read: this.#read, clock, trouble });
      this.#readers.push(reader);
      this.#pollers.push(new Poller({ ...context, points: group, read: (_, signal) => this.#poll(reader, signal) }));
    }
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    await this.#line.leave(this.#member);
  }

  async readOne(point: ModbusPoint, signal: AbortSignal): Promise<number> {
    const { clock } = this.#context;
    const { register } = point.spec;
    const data = await this.#line.use(() => readPatiently(() => this.#read(register, signal), clock, signal));
    if (data instanceof ModbusError) throw data;
    const reading = readingOf(point, register.address, data);
    if ('problem' in reading) throw new ModbusError(reading.problem, 'exception');
    return Number(reading.raw);
  }

  async write({ spec: { register } }: ModbusPoint, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    const { unit, timeoutMs } = this.#context.source.spec;
    const requests = writeRequests(unit, register.address, encode(raw, register)!);
    await this.#line.use(() => this.#line.send(requests, timeoutMs, signal, guard));
  }

  #read = (span: Span, signal: AbortSignal): Promise<Buffer> => {
    const { unit, timeoutMs } = this.#context.source.spec;
    return this.#line.send([readRequest(unit, span)], timeoutMs, signal);
  };

  async #poll(reader: BlockReader, signal: AbortSignal): Promise<Reading[]> {
    const poll = await this.#line.use(() => reader.poll(signal));
    this.#updateStatus(poll);
    return poll.readings;
  }

  #updateStatus({ errors, hasResponded, problem }: Poll): void {
    const { status } = this.#context;
    status.errors += errors;
    // Nothing is known about the device if no register was due.
    if (!hasResponded && problem === undefined) return;
    if (hasResponded) status.connect();
    else status.disconnect();
    const [first, ...others] = this.#readers.flatMap((reader) => reader.failures());
    const error = problem ?? first?.error;
    status.hint = error?.hint;
    status.problem = error?.message;
    if (problem !== undefined || first === undefined) return;
    const { name, spec } = first.point;
    const more = others.length > 0 ? ` and ${others.length} more` : '';
    status.problem = `${name} (${registerText(spec.register)})${more}: ${first.error.message}`;
  }
}
