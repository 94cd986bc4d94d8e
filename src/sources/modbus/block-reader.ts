/**
 * Reads the registers of a device in as few requests (blocks) as possible.
 *
 * If the device rejects a block, its registers are read one by one in the same poll. Rejected registers are retried
 * separately after 5, 10, 20 s, and so on, and omitted from other blocks. If the device returns all registers, it
 * rejects the gaps (unused registers) or the length of the block. Later blocks omit the gaps, or are half as long.
 * Registers with invalid responses and other failures are retried in the same way.
 *
 * If the device does not respond to a block that is longer than all blocks that it has returned, the next poll begins
 * with a short request. If the device responds to it but again not to the block, later blocks are half as long.
 *
 * A value and its scale register are read in one block if `max_registers` allows it. Otherwise the scale register is
 * read before and after the value, which is a failure if the scale factor has changed.
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
  /** Values that use the register as a scale factor. */
  scaled: ModbusPoint[];
  /** End address of the registers that must be in the same block: values of a scale register, or scale registers. */
  reach: number;
  /** Whether a block begins here, because the device rejects a block that also contains the previous item. */
  beginsBlock: boolean;
  /** Set while the registers cannot be read. */
  failure?: { error: ModbusError; retryInMs: number; dueMs: number } | undefined;
}

/** A request, and the items that it covers. */
interface Block extends Span {
  items: Item[];
  /** Largest `reach` of the items. */
  reach: number;
}

/** Exponent in a scale register before and after its value was read, or the reason why it is unusable. */
interface Exponents {
  before?: number | string;
  after?: number | string;
}

/** A register contains 16 bits, so this many coils occupy the same space in a response. */
const BITS_PER_REGISTER = 16;
/** Maximum number of unused registers between two values in a block. Reading them is cheaper than another request. */
const MAX_GAP = 8;
/** Largest exponent of a scale factor (SunSpec). */
const MAX_EXPONENT = 10;
const NOT_IMPLEMENTED = -0x8000;
const WHOLE_REGISTER = { lowest: 0, count: 16 };
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
  /** Planned requests for scale registers that are not in the block of their value, sent before and after the others. */
  #scales: Block[] = [];
  /** Items that are retried later. */
  #skipped: Item[] = [];
  /** Maximum number of registers per request: `max_registers`, or less if the device ignores longer requests. */
  #maxRegisters: number;
  /** Largest number of registers that the device has returned in one response. */
  #returned = 0;
  /** Length and first item of a block without a response, which may be too long for the device. */
  #ignored: { registers: number; first: Item } | undefined;
  /** Monotonic time from which the plan is outdated. */
  #planUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: BlockReaderOptions) {
    this.#options = options;
    this.#maxRegisters = options.maxRegisters;
    const items = new Map<string, Item>();
    const itemOf = ({ table, address, length }: Span): Item => {
      const key = `${table} ${address} ${length}`;
      const fresh = { table, address, length, points: [], scaled: [], reach: address + length, beginsBlock: false };
      const item: Item = items.get(key) ?? fresh;
      items.set(key, item);
      return item;
    };
    for (const point of options.points) {
      const { register, scaleRegister } = point.spec;
      const item = itemOf(register);
      item.points.push(point);
      if (scaleRegister === undefined) continue;
      const scale = itemOf(scaleRegister);
      scale.scaled.push(point);
      const [first, last] = item.address < scale.address ? [item, scale] : [scale, item];
      const isReadable = item.table === scale.table && endOf(last) - first.address <= options.maxRegisters;
      if (isReadable) first.reach = Math.max(first.reach, endOf(last));
    }
    this.#items = [...items.values()].sort(
      (a, b) => a.table.localeCompare(b.table) || a.address - b.address || a.length - b.length,
    );
  }

  /** Returns the points that could not be read, with their errors. */
  failures(): { point: ModbusPoint; register: string; error: ModbusError }[] {
    return this.#items.flatMap((item) => {
      const { failure } = item;
      return failure === undefined ? [] : affectedBy(item).map((one) => ({ ...one, error: failure.error }));
    });
  }

  /**
   * Reads all points once. `request` reads a span, and returns the error if there is no response with values.
   *
   * Returns the readings. `hasResponded`: whether the device responded with values or an exception. `problem`: error if
   * the device does not respond, or stopped responding.
   */
  async poll(request: (span: Span) => Promise<Buffer | ModbusError>) {
    const readings = new Map<ModbusPoint, Reading>();
    let hasResponded = false;
    let problem: ModbusError | undefined;
    /** Tables that the device does not support. */
    const unsupported = new Map<ModbusTable, ModbusError>();
    /** Exponents of scaled values that were read separately from their values. */
    const exponents = new Map<ModbusPoint, Exponents>();
    const addExponent = (point: ModbusPoint, exponent: number | string) => {
      const isRead = 'raw' in (readings.get(point) ?? {});
      exponents.set(point, { ...exponents.get(point), [isRead ? 'after' : 'before']: exponent });
    };
    /** Reads a span and adds the values of its items. Returns the error if there is no response with values. */
    const read = async (span: Span, items: readonly Item[]): Promise<ModbusError | undefined> => {
      const known = problem?.isUnreachable ? problem : unsupported.get(span.table);
      if (known !== undefined) return known;
      const response = await request(span);
      const error = response instanceof ModbusError ? response : undefined;
      if (error?.failure === 'silent' && error.exception === undefined) this.#recordIgnored(span, items, hasResponded);
      if (error?.isUnreachable || (error?.failure === 'garbled' && !hasResponded)) problem = error;
      else if (error?.failure !== 'garbled') [hasResponded, problem] = [true, undefined];
      if (response instanceof ModbusError) return response;
      this.#returned = Math.max(this.#returned, registersIn(span));
      for (const item of items) {
        for (const point of item.points) {
          const reading = readingOf(point, span.address, response);
          const { scaleRegister } = point.spec;
          const isWhole = scaleRegister !== undefined && contains(span, scaleRegister);
          const exponent = isWhole ? exponentOf(point, span.address, response) : undefined;
          readings.set(point, exponent === undefined ? reading : withExponent(reading, exponent));
        }
        for (const point of item.scaled) addExponent(point, exponentOf(point, span.address, response));
        if (item.failure !== undefined) this.#recover(item);
      }
      return undefined;
    };
    const fail = (items: readonly Item[], error: ModbusError | undefined) => {
      const failure = error?.isUnreachable ? undefined : error?.message;
      for (const { points, scaled } of items) {
        // The short request before an ignored block may have returned the value.
        const isRead = (point: ModbusPoint) => failure === undefined && 'raw' in (readings.get(point) ?? {});
        for (const point of points) if (!isRead(point)) readings.set(point, { point, failure });
        if (failure !== undefined) for (const point of scaled) addExponent(point, failure);
      }
      // An unresponsive device is read again in the next poll.
      if (error && !error.isUnreachable) this.#recordFailure(items, error);
    };
    this.#planBlocks();
    fail(this.#skipped, undefined);
    const ignored = this.#ignored;
    const planned = [...(ignored === undefined ? [] : [blockOf(ignored.first)]), ...this.#scales, ...this.#blocks];
    for (const [index, block] of [...planned, ...this.#scales].entries()) {
      const { table, items } = block;
      // Scale registers that could not be read before the values are not read after them.
      if (index >= planned.length && items.some(hasFailed)) continue;
      const error = await read(block, items);
      if (error === undefined) continue;
      if (error.failure !== 'exception' || error.isBusy || items.length === 1) {
        fail(items, error);
        continue;
      }
      let failed = 0;
      const scales = items.filter(({ scaled }) => scaled.length > 0);
      const values = items.filter(({ scaled }) => scaled.length === 0);
      for (const [at, item] of [...scales, ...values, ...scales].entries()) {
        if (at >= items.length && hasFailed(item)) continue;
        const own = await read(item, [item]);
        if (own === undefined) continue;
        failed++;
        fail([item], own);
        const isUnsupported = at === 0 && [error, own].every(({ exception }) => exception === ILLEGAL_FUNCTION);
        if (isUnsupported) unsupported.set(table, own);
      }
      if (failed === 0 && error.isRejection) this.#divide(items);
    }
    for (const [point, reading] of readings) {
      if (point.spec.scaleRegister === undefined || !('raw' in reading) || reading.exponent !== undefined) continue;
      readings.set(point, withExponent(reading, stableExponent(exponents.get(point) ?? {})));
    }
    if (hasResponded && problem === undefined) this.#recordAllReturned();
    return { readings: [...readings.values()], hasResponded, problem };
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
      for (const { point, register } of isFirst ? affectedBy(item) : []) {
        const fields = { ...this.#fieldsOf(point, register), error: error.message, hint: error.hint, retryInMs };
        const invalid = { event: 'modbus.invalid_response', ...fields, ...error.frames };
        if (error.failure === 'garbled') trouble.report(invalid, 'invalid response from Modbus device', point.name);
        else trouble.report({ event: 'modbus.unreadable', ...fields }, 'failed to read register', point.name);
      }
    }
  }

  #recover(item: Item): void {
    item.failure = undefined;
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    const { trouble } = this.#options;
    for (const { point, register } of affectedBy(item)) {
      const fields = this.#fieldsOf(point, register);
      trouble.recovered('modbus.invalid_response', fields, 'valid responses restored', point.name);
      trouble.recovered('modbus.unreadable', fields, 'register access restored', point.name);
    }
  }

  #fieldsOf({ name }: ModbusPoint, register: string) {
    return { source: this.#options.source, value: name, register };
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

  /** `hasResponded`: whether the device responded to a shorter request in the same poll. */
  #recordIgnored(span: Span, items: readonly Item[], hasResponded: boolean): void {
    const registers = registersIn(span);
    if (registers <= this.#returned || items.length === 1) return;
    if (hasResponded && this.#ignored !== undefined) {
      this.#maxRegisters = registers >> 1;
      this.#planUntilMs = Number.NEGATIVE_INFINITY;
    }
    this.#ignored = { registers, first: items[0]! };
  }

  /** Ends the search for the length of requests to which the device responds. */
  #recordAllReturned(): void {
    if (this.#ignored === undefined) return;
    this.#ignored = undefined;
    const { source, maxRegisters, trouble } = this.#options;
    if (this.#maxRegisters === maxRegisters) return;
    const hint = `To avoid the search after each startup, set \`max_registers: ${this.#maxRegisters}\`.`;
    const fields = { source, registers: this.#maxRegisters, hint };
    trouble.report(
      { event: 'modbus.requests_shortened', ...fields },
      'device ignores long requests, requests shortened',
    );
  }

  /** Plans blocks of readable items and blocks of items to be retried. */
  #planBlocks(): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs < this.#planUntilMs) return;
    [this.#skipped, this.#planUntilMs] = [[], Number.POSITIVE_INFINITY];
    for (const item of this.#items) {
      if (item.failure === undefined) continue;
      this.#planUntilMs = Math.min(this.#planUntilMs, item.failure.dueMs);
      if (item.failure.dueMs > nowMs) this.#skipped.push(item);
    }
    const blocks = this.#blocksOf(this.#items);
    const blockWith = new Map<ModbusPoint, Block>();
    for (const block of blocks) {
      for (const { points } of block.items) for (const point of points) blockWith.set(point, block);
    }
    const isApart = (point: ModbusPoint) =>
      blockWith.has(point) && !contains(blockWith.get(point)!, point.spec.scaleRegister!);
    const apart = new Set(this.#items.filter(({ scaled }) => scaled.some(isApart)));
    this.#blocks = blocks.filter(({ items }) => items.some((item) => item.points.length > 0 || !apart.has(item)));
    this.#scales = this.#blocksOf([...apart]);
  }

  /** Returns blocks of consecutive items, none of which contains a skipped item. */
  #blocksOf(items: readonly Item[]): Block[] {
    const maxRegisters = this.#maxRegisters;
    const skipped = new Set(this.#skipped);
    const blocks: Block[] = [];
    let previous: Item | undefined;
    for (const item of items) {
      const { table, reach, failure, beginsBlock } = item;
      if (skipped.has(item)) {
        previous = undefined;
        continue;
      }
      const block = blocks.at(-1);
      const canJoin = previous?.table === table && !previous.failure === !failure && !beginsBlock;
      const maxLength = isBits(table) ? maxRegisters * BITS_PER_REGISTER : maxRegisters;
      if (canJoin && isJoined(block!, item, maxLength)) {
        block!.items.push(item);
        block!.length = Math.max(endOf(item), endOf(block!)) - block!.address;
        block!.reach = Math.max(reach, block!.reach);
      } else {
        blocks.push(blockOf(item));
      }
      previous = item;
    }
    return blocks;
  }
}

function blockOf(item: Item): Block {
  const { table, address, length, reach } = item;
  return { table, address, length, reach, items: [item] };
}

function registersIn({ table, length }: Span): number {
  return isBits(table) ? Math.ceil(length / BITS_PER_REGISTER) : length;
}

const hasFailed = ({ failure }: Item) => failure !== undefined;

/**
 * Returns whether the next item belongs to a block: after a small gap, or if the block contains its value or scale
 * register. An item whose other registers would exceed the maximum length begins a block.
 */
function isJoined(block: Block, item: Item, maxLength: number): boolean {
  const isRequired = item.address < block.reach;
  const end = Math.max(endOf(block), isRequired ? endOf(item) : item.reach);
  return (isRequired || item.address - endOf(block) <= MAX_GAP) && end - block.address <= maxLength;
}

/** Returns the values that depend on an item, with the name of the register. */
function affectedBy({ points, scaled }: Item): { point: ModbusPoint; register: string }[] {
  const textOf = ({ spec }: ModbusPoint) => `scale_register ${registerText(spec.scaleRegister!)}`;
  return [
    ...points.map((point) => ({ point, register: registerText(point.spec.register) })),
    ...scaled.map((point) => ({ point, register: textOf(point) })),
  ];
}

/** Returns the exponent from the scale register of a value, or the reason why it is unusable. */
function exponentOf({ spec }: ModbusPoint, first: number, data: Buffer): number | string {
  const exponent = decode(data, first, spec.scaleRegister!) as number;
  if (exponent === NOT_IMPLEMENTED) return 'contains 0x8000, which means "not implemented"';
  return Math.abs(exponent) <= MAX_EXPONENT
    ? exponent
    : `contains ${exponent}, but the exponent must be between -10 and 10`;
}

/** Returns the exponent that applied before and after the value was read; `undefined` if the register is retried later. */
function stableExponent({ before, after }: Exponents): number | string | undefined {
  if (typeof before !== 'number' || before === after) return before;
  return typeof after === 'number' ? 'changed while the value was read' : after;
}

function withExponent(reading: Reading, exponent: number | string | undefined): Reading {
  if (!('raw' in reading)) return reading;
  const { point } = reading;
  if (typeof exponent === 'number') return { ...reading, exponent };
  if (exponent === undefined) return { point, failure: undefined };
  const { scaleRegister } = (point as ModbusPoint).spec;
  return { point, problem: `${registerText(scaleRegister!)} (scale_register) ${exponent}`, fault: 'no_value' };
}

/** Returns the reading of a value from the data of a response that begins at the address `first`. */
export function readingOf(
  point: ModbusPoint,
  first: number,
  data: Buffer,
): Reading & ({ raw: number | string } | { problem: string }) {
  const { register, noValueWords } = point.spec;
  if (noValueWords !== undefined) {
    const word = Number(decode(data, first, { ...register, bits: WHOLE_REGISTER }));
    const problem = `the register contains ${word}, which means "no value" (no_value)`;
    if (noValueWords.includes(word)) return { point, problem, fault: 'no_value' };
  }
  const raw = decode(data, first, register);
  if (typeof raw === 'string' || Number.isFinite(raw)) return { point, raw };
  const content = register.type.startsWith('bcd') ? 'BCD digits' : 'a number';
  return { point, problem: `the register does not contain ${content}` };
}

function contains(span: Span, other: Span): boolean {
  return span.table === other.table && span.address <= other.address && endOf(span) >= endOf(other);
}

function endOf({ address, length }: Span): number {
  return address + length;
}
