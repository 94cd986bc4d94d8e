import { LENGTH_OF_TYPE, type ModbusRegister, type ModbusTable } from './register.ts';

/** A run of registers, or of bits. */
export interface Span {
  table: ModbusTable;
  address: number;
  length: number;
}

export function spanOf({ table, address, type }: ModbusRegister): Span {
  return { table, address, length: LENGTH_OF_TYPE[type] };
}

/** Firmware is changed, modules are plugged in: what was refused is asked for again after so long. */
const REMEMBERED_MS = 10 * 60_000;
/** "Device failure" may be a sensor's: sooner. */
const FAILURE_REMEMBERED_MS = 60_000;

/**
 * What a device answered that it will not read: registers that it does not have, and places over which it takes no one request
 * (a hole between two registers, or more than it gives at once). Each is remembered for itself alone, and for a while.
 */
export class RefusedRegisters {
  readonly #registers = new Map<string, { span: Span; untilMs: number }>();
  /** By table, the address at which a request has to begin anew. */
  readonly #cuts = new Map<string, { table: ModbusTable; address: number; untilMs: number }>();

  /** Nothing is known to be refused: what can be asked for does not change with time. */
  get isEmpty(): boolean {
    return this.#registers.size === 0 && this.#cuts.size === 0;
  }

  /** The device refused this one, alone, with this exception. */
  refuse(register: ModbusRegister, code: number, nowMs: number): void {
    const span = spanOf(register);
    const untilMs = nowMs + (code === 4 ? FAILURE_REMEMBERED_MS : REMEMBERED_MS);
    this.#registers.set(keyOf(span), { span, untilMs });
  }

  /** It gave these. */
  allow(span: Span): void {
    this.#registers.delete(keyOf(span));
  }

  /** It gives both sides of this address, and not in one request. */
  cut(table: ModbusTable, address: number, nowMs: number): void {
    this.#cuts.set(`${table} ${address}`, { table, address, untilMs: nowMs + REMEMBERED_MS });
  }

  /** Whether these registers are known to be refused, and whether it is time to ask once more. */
  stateOf(span: Span, nowMs: number): 'asked' | 'refused' | 'tried-again' {
    const found = this.#registers.get(keyOf(span));
    if (found === undefined) return 'asked';
    return nowMs < found.untilMs ? 'refused' : 'tried-again';
  }

  /** Lets go of cuts whose time is over. */
  forgetOldCuts(nowMs: number): void {
    for (const [key, { untilMs }] of this.#cuts) if (nowMs >= untilMs) this.#cuts.delete(key);
  }

  /** Whether one request may go from `first` over everything before `end`. */
  mayJoin({ table, address: first }: Span, next: Span): boolean {
    for (const cut of this.#cuts.values()) {
      if (cut.table === table && cut.address > first && cut.address <= next.address) return false;
    }
    const end = next.address + next.length;
    for (const { span } of this.#registers.values()) {
      if (span.table === table && span.address < end && span.address + span.length > first) return false;
    }
    return true;
  }
}

function keyOf({ table, address, length }: Span): string {
  return `${table} ${address}+${length}`;
}
