import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import type { ModbusAddress } from './connection.ts';
import { type LineRules, ModbusLine, nameOf } from './line.ts';

/** Registration of a source on a line. */
interface Joining extends LineRules {
  /** Name of the source in tags.yaml. */
  source: string;
  address: ModbusAddress;
  unit: number;
}

/** A source's use of a line. */
export interface JoinedLine {
  line: ModbusLine;
  /** Removes the source from the line. If no other source uses the line, closes it and resolves when it is closed. */
  leave(): Promise<void>;
}

interface SharedLine {
  line: ModbusLine;
  sources: number;
  closed: PromiseWithResolvers<void>;
}

/**
 * All Modbus lines in this process. Sources with the same serial port, or the same host and port, share a line. If a
 * reload changes the baud rate, the new line waits until the last source has left the previous line.
 */
export class ModbusLines {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #lines = new Map<string, SharedLine>();
  /** Promises that resolve when the latest line of each serial port or address is closed. The next line awaits them. */
  readonly #closed = new Map<string, Promise<void>>();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  join({ source, address, unit, ...rules }: Joining): JoinedLine {
    const key = JSON.stringify(address);
    const shared = this.#lines.get(key) ?? this.#open(key, address);
    shared.sources++;
    const endRegistration = shared.line.join(unit, source, rules);
    let left: Promise<void> | undefined;
    const leave = () => {
      if (left === undefined) endRegistration();
      left ??= this.#leave(key, shared);
      return left;
    };
    return { line: shared.line, leave };
  }

  #open(key: string, address: ModbusAddress): SharedLine {
    const name = nameOf(address);
    const after = this.#closed.get(name) ?? Promise.resolve();
    const line = new ModbusLine({ address, clock: this.#clock, log: this.#log, after });
    const shared = { line, sources: 0, closed: Promise.withResolvers<void>() };
    this.#lines.set(key, shared);
    this.#closed.set(
      name,
      Promise.all([after, shared.closed.promise]).then(() => {}),
    );
    return shared;
  }

  async #leave(key: string, shared: SharedLine): Promise<void> {
    if (--shared.sources > 0) return;
    if (this.#lines.get(key) === shared) this.#lines.delete(key);
    await shared.line.stop();
    shared.closed.resolve();
  }
}
