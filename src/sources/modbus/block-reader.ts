/**
 * Reads the registers of a device in as few requests (blocks) as possible.
 *
 * If the device rejects a block, its registers are read one by one in the same poll. Rejected registers are retried
 * separately after 5, 10, 20 s, and so on, and omitted from other blocks. If the device returns all registers, it
 * rejects the gaps (unused registers) or the length of the block. Later blocks omit the gaps, or are half as long.
 * Registers with invalid responses and other failures are retried in the same way.
 */
import type { Clock } from '../../base/clock.ts';
import type { Reading } from '../intake/gate.ts';
import type { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { ILLEGAL_FUNCTION, ModbusError } from './modbus-error.ts';
import { decode, isBits, type ModbusTable, type ModbusValue, registerText, type Span } from './register.ts';

export type ModbusPoint = Point<ModbusValue>;

interface BlockReaderOptions {
  /** Name of the source in tags.yaml. */
  source: string;
  points: readonly ModbusPoint[];
  /** Maximum number of registers per request. */
  maxRegisters: number;
  clock: Clock;
  trouble: TroubleLog;
}

/** The values in the same registers, for example the bits of one register. */
interface Item extends Span {
  points: ModbusPoint[];
  /** Whether a block begins here, because the device rejects a block that also contains the previous item. */
  beginsBlock: boolean;
  /** Set while the registers cannot be read. */
  failure?: { error: ModbusError; retryInMs: number; dueMs: number } | undefined;
}

/** A request, and the items that it covers. */
interface Block extends Span {
  items: Item[];
}

/** A register contains 16 bits, so this many coils occupy the same space in a response. */
const BITS_PER_REGISTER = 16;
/** Maximum number of unused registers between two values in a block. Reading them is cheaper than another request. */
const MAX_GAP = 8;
const FIRST_RETRY_MS = 5_000;
/** Maximum retry delay for rejected registers. */
const MAX_REJECTED_MS = 10 * 60_000;
/** Maximum retry delay after other failures. Shorter, because these may be temporary, for example a faulty sensor. */
const MAX_FAILED_MS = 60_000;

export class BlockReader {
  readonly #options: BlockReaderOptions;
  /** Sorted by table and address. */
  readonly #items: readonly Item[];
  /** Planned requests. */
  #blocks: Block[] = [];
  /** Items that are retried later. */
  #skipped: Item[] = [];
  /** Monotonic time from which the plan is outdated. */
  #planUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: BlockReaderOptions) {
    this.#options = options;
    const keyOf = ({ spec: { register } }: ModbusPoint) => `${register.table} ${register.address} ${register.length}`;
    const items = [...Map.groupBy(options.points, keyOf).values()].map((points) => {
      const { table, address, length } = points[0]!.spec.register;
      return { table, address, length, points, beginsBlock: false };
    });
    this.#items = items.sort((a, b) => a.table.localeCompare(b.table) || a.address - b.address || a.length - b.length);
  }

  /** Returns the points that could not be read, with their errors. */
  failures(): { point: ModbusPoint; error: ModbusError }[] {
    return this.#items.flatMap(({ points, failure }) =>
      failure === undefined ? [] : points.map((point) => ({ point, error: failure.error })),
    );
  }

  /**
   * Reads all points once. `request` reads a span, and returns the error if there is no response with values.
   *
   * Returns the readings. `hasResponded`: whether the device responded with values or an exception. `problem`: error if
   * the device does not respond, or stopped responding.
   */
  async poll(request: (span: Span) => Promise<Buffer | ModbusError>) {
    const readings: Reading[] = [];
    let hasResponded = false;
    let problem: ModbusError | undefined;
    /** Tables that the device does not support. */
    const unsupported = new Map<ModbusTable, ModbusError>();
    /** Reads a span and adds the values of its items. Returns the error if there is no response with values. */
    const read = async (span: Span, items: readonly Item[]): Promise<ModbusError | undefined> => {
      const known = problem?.isUnreachable ? problem : unsupported.get(span.table);
      if (known !== undefined) return known;
      const response = await request(span);
      const error = response instanceof ModbusError ? response : undefined;
      if (error?.isUnreachable || (error?.failure === 'garbled' && !hasResponded)) problem = error;
      else if (error?.failure !== 'garbled') [hasResponded, problem] = [true, undefined];
      if (response instanceof ModbusError) return response;
      for (const item of items) {
        for (const point of item.points) readings.push(readingOf(point, span.address, response));
        if (item.failure !== undefined) this.#recover(item);
      }
      return undefined;
    };
    const fail = (items: readonly Item[], error: ModbusError | undefined) => {
      const failure = error?.isUnreachable ? undefined : error?.message;
      for (const { points } of items) for (const point of points) readings.push({ point, failure });
      // An unresponsive device is read again in the next poll.
      if (error && !error.isUnreachable) this.#recordFailure(items, error);
    };
    this.#planBlocks();
    fail(this.#skipped, undefined);
    for (const block of this.#blocks) {
      const { table, items } = block;
      const error = await read(block, items);
      if (error === undefined) continue;
      if (error.failure !== 'exception' || error.isBusy || items.length === 1) {
        fail(items, error);
        continue;
      }
      let failed = 0;
      for (const [at, item] of items.entries()) {
        const own = await read(item, [item]);
        if (own === undefined) continue;
        failed++;
        fail([item], own);
        const isUnsupported = at === 0 && [error, own].every(({ exception }) => exception === ILLEGAL_FUNCTION);
        if (isUnsupported) unsupported.set(table, own);
      }
      if (failed === 0 && error.isRejection) this.#divide(items);
    }
    return { readings, hasResponded, problem };
  }

  /** Records that items could not be read, and when they are retried. Logs the first failure of each value. */
  #recordFailure(items: readonly Item[], error: ModbusError): void {
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    const { clock, trouble } = this.#options;
    for (const item of items) {
      const isFirst = item.failure === undefined;
      const nextMs = Math.max(FIRST_RETRY_MS, 2 * (item.failure?.retryInMs ?? 0));
      const retryInMs = error.isBusy ? 0 : Math.min(error.isRejection ? MAX_REJECTED_MS : MAX_FAILED_MS, nextMs);
      item.failure = { error, retryInMs, dueMs: clock.monotonicMs() + retryInMs };
      for (const point of isFirst ? item.points : []) {
        const fields = { ...this.#fieldsOf(point), error: error.message, hint: error.hint, retryInMs };
        const invalid = { event: 'modbus.invalid_response', ...fields };
        if (error.failure === 'garbled') trouble.report(invalid, 'invalid response from Modbus device', point.name);
        else trouble.report({ event: 'modbus.unreadable', ...fields }, 'failed to read register', point.name);
      }
    }
  }

  #recover(item: Item): void {
    item.failure = undefined;
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    const { trouble } = this.#options;
    for (const point of item.points) {
      const fields = this.#fieldsOf(point);
      trouble.recovered('modbus.invalid_response', fields, 'valid responses restored', point.name);
      trouble.recovered('modbus.unreadable', fields, 'register access restored', point.name);
    }
  }

  #fieldsOf({ name, spec }: ModbusPoint) {
    return { source: this.#options.source, value: name, register: registerText(spec.register) };
  }

  /** Divides a block that the device rejects although it returns all of its items: at its gaps, or in the middle. */
  #divide(items: readonly Item[]): void {
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    let end = endOf(items[0]!);
    let hasGap = false;
    for (const item of items) {
      if (item.address > end) item.beginsBlock = hasGap = true;
      end = Math.max(end, endOf(item));
    }
    if (!hasGap) items[items.length >> 1]!.beginsBlock = true;
  }

  /** Plans blocks of readable items and blocks of items to be retried, none of which contains a skipped item. */
  #planBlocks(): void {
    const { clock, maxRegisters } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs < this.#planUntilMs) return;
    [this.#blocks, this.#skipped, this.#planUntilMs] = [[], [], Number.POSITIVE_INFINITY];
    let previous: Item | undefined;
    for (const item of this.#items) {
      const { table, address, length, failure, beginsBlock } = item;
      if (failure !== undefined) this.#planUntilMs = Math.min(this.#planUntilMs, failure.dueMs);
      if (failure !== undefined && failure.dueMs > nowMs) {
        this.#skipped.push(item);
        previous = undefined;
        continue;
      }
      const block = this.#blocks.at(-1);
      const isJoined = previous?.table === table && !previous.failure === !failure && !beginsBlock;
      const end = Math.max(endOf(item), block === undefined ? 0 : endOf(block));
      const maxLength = isBits(table) ? maxRegisters * BITS_PER_REGISTER : maxRegisters;
      if (isJoined && address - endOf(block!) <= MAX_GAP && end - block!.address <= maxLength) {
        block!.items.push(item);
        block!.length = end - block!.address;
      } else {
        this.#blocks.push({ table, address, length, items: [item] });
      }
      previous = item;
    }
  }
}

/** Returns the reading of a value from the data of a response that begins at the address `first`. */
export function readingOf(
  point: ModbusPoint,
  first: number,
  data: Buffer,
): Reading & ({ raw: number | string } | { problem: string }) {
  const { register } = point.spec;
  const raw = decode(data, first, register);
  if (typeof raw === 'string' || Number.isFinite(raw)) return { point, raw };
  const content = register.type.startsWith('bcd') ? 'BCD digits' : 'a number';
  return { point, problem: `the register does not contain ${content}` };
}

function endOf({ address, length }: Span): number {
  return address + length;
}
