import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import type { ModbusAddress } from './connection.ts';
import { ModbusLine, nameOf } from './line.ts';

/** Whom a source wants to ask. */
export interface Joining {
  /** Of the source in tags.yaml. */
  source: string;
  address: ModbusAddress;
  unit: number;
  /** At least so many connections. */
  connections: number;
}

/** A source's place on a line. */
export interface JoinedLine {
  line: ModbusLine;
  /** Resolves when the line is closed, where nobody else is on it. */
  leave(): Promise<void>;
}

interface Open {
  line: ModbusLine;
  sources: number;
  closed: PromiseWithResolvers<void>;
}

/**
 * The lines of this process: sources that name the same serial line, or the same host and port, share one. While a reload changes the
 * baud of a line, source by source, the new one waits until the last has left the old one.
 */
export class ModbusLines {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #lines = new Map<string, Open>();
  /** By the name of a device or line: what has to be closed before it is opened again. */
  readonly #last = new Map<string, Promise<void>>();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  join({ source, address, unit, connections }: Joining): JoinedLine {
    const key = JSON.stringify(address);
    const open = this.#lines.get(key) ?? this.#open(key, address);
    open.sources++;
    open.line.join(unit, source, connections);
    let left: Promise<void> | undefined;
    return {
      line: open.line,
      leave: () => {
        left ??= this.#leave(key, open);
        return left;
      },
    };
  }

  #open(key: string, address: ModbusAddress): Open {
    const name = nameOf(address);
    const after = this.#last.get(name) ?? Promise.resolve();
    const line = new ModbusLine({ address, clock: this.#clock, log: this.#log, after });
    const open = { line, sources: 0, closed: Promise.withResolvers<void>() };
    this.#lines.set(key, open);
    this.#last.set(
      name,
      after.then(() => open.closed.promise),
    );
    return open;
  }

  async #leave(key: string, open: Open): Promise<void> {
    if (--open.sources > 0) return;
    if (this.#lines.get(key) === open) this.#lines.delete(key);
    await open.line.stop();
    open.closed.resolve();
  }
}
