/** Log entries about individual values. Values with one cause share an entry, because a server can have thousands. */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { Filled } from './gap-filler.ts';
import type { OpcuaValue } from './reader-program.ts';
import type { Gap } from './reading-positions.ts';

type OpcuaPoint = Point<OpcuaValue>;

export class ValueReports {
  readonly #source: string;
  readonly #log: Logger;
  readonly #trouble: TroubleLog;

  constructor(source: string, log: Logger, clock: Clock) {
    this.#source = source;
    this.#log = log;
    this.#trouble = new TroubleLog(log, clock, 'values');
  }

  rejected({ name, spec }: OpcuaPoint, error: string): void {
    const fields = { source: this.#source, value: name, node: spec.node, error };
    this.#trouble.report({ event: 'opcua.refused', ...fields }, 'value rejected by the server', name);
  }

  unreadable({ name }: OpcuaPoint, error: string): void {
    const fields = { source: this.#source, value: name, error };
    this.#trouble.report({ event: 'opcua.unreadable', ...fields }, 'value is not a number or text', name);
  }

  overflow({ name }: OpcuaPoint): void {
    const fields = { source: this.#source, value: name };
    this.#trouble.report(
      { event: 'opcua.overflow', ...fields },
      'the server discarded values because its queue was full',
      name,
    );
  }

  filled({ values, gaps, fromMs, untilMs }: Filled): void {
    const fields = { source: this.#source, values, gaps, from: isoTime(fromMs), until: isoTime(untilMs) };
    this.#log.info({ event: 'opcua.gap_filled', ...fields }, 'missing values read from the server history');
  }

  missing({ name }: OpcuaPoint, { fromMs, untilMs }: Readonly<Gap>, error: string): void {
    const fields = { source: this.#source, value: name, from: isoTime(fromMs), until: isoTime(untilMs), error };
    this.#trouble.report({ event: 'opcua.gap', ...fields }, 'value changes may be missing', name);
  }
}

const isoTime = (ms: number): string => new Date(ms).toISOString();
