/**
 * Reads the registers of a device in as few requests (blocks) as possible, and determines the readings of a poll from
 * its responses.
 *
 * If the device responds to a block with an exception, its registers are read one by one in the same poll. Registers
 * that fail are omitted from other blocks and retried after 5, 10, 20 s, and so on. If no register fails, the device
 * rejects either the gaps (unused registers) or the length of the block. Later blocks then have no gaps or, if the
 * block had none, half its length.
 *
 * If the device does not respond to a block, the poll ends, and the next poll reads the block last. If the device then
 * responds to others but again not to the block, the block is unreadable, and its registers are retried one by one.
 *
 * A block that is longer than all blocks that the device has returned may only be too long. The next poll then begins
 * with a short request. If the device responds to it but again not to the block, later blocks are half as long.
 *
 * A scale register that is not in the block of its value is read before and after the value. If the scale factor has
 * changed in between, the value is a failure.
 */
import type { Clock } from '../../base/clock.ts';
import type { Reading } from '../intake/gate.ts';
import type { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { ILLEGAL_FUNCTION, ModbusError } from './modbus-error.ts';
import { decode, isBits, type ModbusValue, registerText, type Span } from './register.ts';

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

/** Registers that are read together for one or more values, such as all bits in a register. */
interface Item extends Span {
  /** Values that depend on the item, with the name of the register. */
  users: { point: ModbusPoint; register: string }[];
  isScale: boolean;
  isValue: boolean;
  /** Set while the registers cannot be read. */
  failure?: { error: ModbusError; retryInMs: number; dueMs: number } | undefined;
  /** First and latest response of the current poll, and the error if a read failed. */
  first?: Response | undefined;
  latest?: Response | undefined;
  error?: ModbusError | undefined;
}

/** A value with its registers. */
interface Value {
  point: ModbusPoint;
  item: Item;
  scale?: Item | undefined;
}

/** A request, and the items that it covers. */
interface Block extends Span {
  items: Item[];
  hasGap: boolean;
}

interface Response extends Span {
  data: Buffer;
  /** Position among the responses of the poll. */
  index: number;
}

interface Poll {
  /** Reads a span, and returns the error if there is no response with values. */
  request(span: Span): Promise<Buffer | ModbusError>;
  responses: number;
  /** Whether the device responded with values or an exception. */
  hasResponded: boolean;
  /** Ends the poll. */
  unreachable?: ModbusError;
  /** Latest invalid response. */
  garbled?: ModbusError;
}

/** A register contains 16 bits, so this many coils occupy the same space in a response. */
const BITS_PER_REGISTER = 16;
/** Default for the number of unused registers between two values. Reading them is cheaper than another request. */
const MAX_GAP = 8;
/** Largest exponent of a scale factor (SunSpec). */
const MAX_EXPONENT = 10;
const NOT_IMPLEMENTED = -0x8000;
const WHOLE_REGISTER = { lowest: 0, count: 16 };
const FIRST_RETRY_MS = 5_000;
/** Maximum retry delay for registers that are rejected or have no response. */
const MAX_REJECTED_MS = 10 * 60_000;
/** Maximum retry delay after other failures. Shorter, because these may be temporary, for example a faulty sensor. */
const MAX_FAILED_MS = 60_000;

export class BlockReader {
  readonly #options: BlockReaderOptions;
  /** Sorted by table and address. */
  readonly #items: readonly Item[];
  readonly #values: readonly Value[];
  /** Planned requests. */
  #blocks: Block[] = [];
  /** Planned requests for scale registers that are not in the block of their value, sent before and after the others. */
  #scales: Block[] = [];
  /** Monotonic time from which the plan is outdated. */
  #planUntilMs = Number.NEGATIVE_INFINITY;
  /** Maximum number of registers per request: `max_registers`, or less if the device rejects or ignores longer requests. */
  #maxRegisters: number;
  /** Maximum number of unused registers between two values in a block. */
  #maxGap = MAX_GAP;
  /** Largest number of registers that the device has returned in one response. */
  #returned = 0;
  /** Items of a block without a response, which may be too long for the device. The first item is requested alone. */
  #ignored: readonly Item[] = [];
  /** Items of requests without a response. */
  readonly #silent = new Set<Item>();

  constructor(options: BlockReaderOptions) {
    this.#options = options;
    this.#maxRegisters = options.maxRegisters;
    const items = new Map<string, Item>();
    const itemOf = ({ table, address, length }: Span): Item => {
      const key = `${table} ${address} ${length}`;
      const item = items.get(key) ?? { table, address, length, users: [], isScale: false, isValue: false };
      items.set(key, item);
      return item;
    };
    this.#values = options.points.map((point) => {
      const { register, scaleRegister } = point.spec;
      const item = itemOf(register);
      item.isValue = true;
      item.users.push({ point, register: registerText(register) });
      if (scaleRegister === undefined) return { point, item };
      const scale = itemOf(scaleRegister);
      scale.isScale = true;
      scale.users.push({ point, register: `scale_register ${registerText(scaleRegister)}` });
      return { point, item, scale };
    });
    this.#items = [...items.values()].sort(
      (a, b) => a.table.localeCompare(b.table) || a.address - b.address || a.length - b.length,
    );
  }

  /** Returns the values that could not be read, with their errors. */
  failures(): { point: ModbusPoint; register: string; error: ModbusError }[] {
    return this.#items.flatMap(({ failure, users }) =>
      failure === undefined ? [] : users.map((user) => ({ ...user, error: failure.error })),
    );
  }

  /**
   * Reads all values once. Returns their readings, whether the device responded with values or an exception, and the
   * error if the device does not respond, or stopped responding.
   */
  async poll(request: Poll['request']) {
    const poll: Poll = { request, responses: 0, hasResponded: false };
    for (const item of this.#items) {
      item.first = undefined;
      item.latest = undefined;
      item.error = undefined;
    }
    this.#updatePlan();
    const [blocks, scales] = [this.#blocks, this.#scales];
    const probe = this.#ignored.slice(0, 1).map(blockOf);
    const isSilent = ({ items }: Block) => Number(items.some((item) => this.#silent.has(item)));
    const ordered = [...scales, ...blocks].sort((a, b) => isSilent(a) - isSilent(b));
    for (const block of [...probe, ...ordered]) await this.#readBlock(block, poll);
    for (const block of scales) if (block.items.every(isRead)) await this.#readBlock(block, poll);
    const { hasResponded, unreachable, garbled } = poll;
    const problem = unreachable ?? (hasResponded ? undefined : garbled);
    if (hasResponded && problem === undefined) this.#endSearch();
    return { readings: this.#values.map(readingOfValue), hasResponded, problem };
  }

  async #readBlock(block: Block, poll: Poll): Promise<void> {
    const { items } = block;
    const error = await this.#request(block, items, poll);
    if (error === undefined || poll.unreachable) return;
    if (error.failure !== 'exception' || error.isBusy || items.length === 1) {
      this.#recordFailure(items, error);
      return;
    }
    const scales = items.filter(({ isScale }) => isScale);
    const singles = [...scales, ...items.filter(({ isScale }) => !isScale), ...scales];
    for (const item of singles) {
      const own = item.error === undefined ? await this.#request(item, [item], poll) : undefined;
      if (poll.unreachable) return;
      if (own === undefined) continue;
      // The device does not support the table.
      const isUnsupported =
        item === singles[0] && [error, own].every(({ exception }) => exception === ILLEGAL_FUNCTION);
      this.#recordFailure(isUnsupported ? items : [item], own);
      if (isUnsupported) return;
    }
    if (error.isRejection && items.every(isRead)) this.#shorten(block);
  }

  /** Reads a span for its items. Returns the error if there is no response with values. */
  async #request(span: Span, items: readonly Item[], poll: Poll): Promise<ModbusError | undefined> {
    if (poll.unreachable) return poll.unreachable;
    const data = await poll.request(span);
    if (data instanceof ModbusError) {
      if (data.isUnreachable) return this.#recordSilence(span, items, data, poll);
      if (data.failure === 'garbled') poll.garbled = data;
      else poll.hasResponded = true;
      return data;
    }
    poll.hasResponded = true;
    this.#returned = Math.max(this.#returned, registersIn(span));
    const { table, address, length } = span;
    const response = { table, address, length, data, index: poll.responses++ };
    for (const item of items) {
      item.first ??= response;
      item.latest = response;
      this.#silent.delete(item);
      if (item.failure !== undefined) this.#recover(item);
    }
    return undefined;
  }

  /** Ends the poll, unless only these items have no response. Returns the error of the items. */
  #recordSilence(span: Span, items: readonly Item[], error: ModbusError, poll: Poll): ModbusError {
    const isWaited = error.failure === 'silent' && !error.isPaused;
    const isLong = items.length > 1 && registersIn(span) > this.#returned;
    const isKnown = items.some((item) => this.#silent.has(item));
    if (isWaited && poll.hasResponded && isKnown && !isLong) return error.ofRegisters();
    poll.unreachable = error;
    if (!isWaited) return error;
    for (const item of items) this.#silent.add(item);
    // The next short request is for another item, because the device may ignore only this one.
    const [first, ...others] = this.#ignored;
    if (items.length === 1 && items[0] === first) this.#ignored = [...others, first!];
    if (isLong) this.#recordIgnored(registersIn(span), items, poll.hasResponded);
    return error;
  }

  /** Records that items could not be read, and when they are retried. Logs the first failure of each value. */
  #recordFailure(items: readonly Item[], error: ModbusError): void {
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    const { clock, trouble } = this.#options;
    for (const item of items) {
      const isFirst = item.failure === undefined;
      const nextMs = Math.max(FIRST_RETRY_MS, 2 * (item.failure?.retryInMs ?? 0));
      const isLasting = error.isRejection || error.failure === 'silent';
      const retryInMs = error.isBusy ? 0 : Math.min(isLasting ? MAX_REJECTED_MS : MAX_FAILED_MS, nextMs);
      item.error = error;
      item.failure = { error, retryInMs, dueMs: clock.monotonicMs() + retryInMs };
      for (const user of isFirst ? item.users : []) {
        const fields = { ...this.#fieldsOf(user), error: error.message, hint: error.hint, retryInMs, ...error.frames };
        const { name } = user.point;
        if (error.failure === 'garbled') {
          trouble.report({ event: 'modbus.invalid_response', ...fields }, 'invalid response from Modbus device', name);
        } else {
          trouble.report({ event: 'modbus.unreadable', ...fields }, 'failed to read register', name);
        }
      }
    }
  }

  #recover(item: Item): void {
    item.failure = undefined;
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
    const { trouble } = this.#options;
    for (const user of item.users) {
      const { name } = user.point;
      const fields = this.#fieldsOf(user);
      trouble.recovered('modbus.invalid_response', fields, 'valid responses restored', name);
      trouble.recovered('modbus.unreadable', fields, 'register access restored', name);
    }
  }

  #fieldsOf({ point, register }: Item['users'][number]) {
    return { source: this.#options.source, value: point.name, register };
  }

  /** Adapts the plan to a device that rejects a block although it returns each item separately. */
  #shorten(block: Block): void {
    if (block.hasGap) this.#maxGap = 0;
    else this.#maxRegisters = Math.max(1, registersIn(block) >> 1);
    this.#planUntilMs = Number.NEGATIVE_INFINITY;
  }

  /** `hasResponded`: whether the device responded to a shorter request in the same poll. */
  #recordIgnored(registers: number, items: readonly Item[], hasResponded: boolean): void {
    if (hasResponded && this.#ignored.length > 0) {
      this.#maxRegisters = registers >> 1;
      this.#planUntilMs = Number.NEGATIVE_INFINITY;
    }
    this.#ignored = items;
  }

  /** Ends the search for the length of requests to which the device responds. */
  #endSearch(): void {
    if (this.#ignored.length === 0) return;
    this.#ignored = [];
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
  #updatePlan(): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs < this.#planUntilMs) return;
    this.#planUntilMs = Number.POSITIVE_INFINITY;
    const due = new Set(this.#items);
    for (const item of this.#items) {
      if (item.failure === undefined || item.failure.dueMs <= nowMs) continue;
      this.#planUntilMs = Math.min(this.#planUntilMs, item.failure.dueMs);
      due.delete(item);
    }
    const blocks = this.#blocksOf(due);
    const blockWith = new Map(blocks.flatMap((block) => block.items.map((item) => [item, block])));
    const apart = new Set<Item>();
    for (const { item, scale } of this.#values) {
      if (scale === undefined || !due.has(item) || !due.has(scale)) continue;
      if (blockWith.get(item) !== blockWith.get(scale)) apart.add(scale);
    }
    this.#blocks = blocks.filter(({ items }) => items.some(({ isValue }) => isValue));
    this.#scales = this.#blocksOf(apart);
  }

  /** Returns blocks of consecutive items. A block does not extend over an item that is retried later. */
  #blocksOf(wanted: ReadonlySet<Item>): Block[] {
    const blocks: Block[] = [];
    let block: Block | undefined;
    for (const item of this.#items) {
      if (!wanted.has(item)) {
        if (item.failure !== undefined) block = undefined;
      } else if (block !== undefined && this.#fits(block, item)) {
        block.items.push(item);
        block.hasGap ||= item.address > endOf(block);
        block.length = Math.max(endOf(item), endOf(block)) - block.address;
      } else {
        block = blockOf(item);
        blocks.push(block);
      }
    }
    return blocks;
  }

  /** Returns whether the next item belongs to a block. Items to be retried are in separate blocks. */
  #fits(block: Block, item: Item): boolean {
    if (item.table !== block.table || !item.failure !== !block.items[0]!.failure) return false;
    if (item.failure?.error.failure === 'silent') return false;
    const maxLength = this.#maxRegisters * (isBits(item.table) ? BITS_PER_REGISTER : 1);
    const length = Math.max(endOf(item), endOf(block)) - block.address;
    return item.address - endOf(block) <= this.#maxGap && length <= maxLength;
  }
}

const isRead = ({ latest }: Item) => latest !== undefined;

function blockOf(item: Item): Block {
  const { table, address, length } = item;
  return { table, address, length, items: [item], hasGap: false };
}

function registersIn({ table, length }: Span): number {
  return isBits(table) ? Math.ceil(length / BITS_PER_REGISTER) : length;
}

function readingOfValue({ point, item, scale }: Value): Reading {
  if (item.latest === undefined) return { point, failure: item.error?.message };
  const reading = readingOf(point, item.latest.address, item.latest.data);
  if (scale === undefined || 'problem' in reading) return reading;
  const exponent = exponentOf(item.latest, scale, point);
  if (exponent === undefined) return { point, failure: undefined };
  if (typeof exponent === 'number') return { ...reading, exponent };
  return { point, problem: `${registerText(scale)} (scale_register) ${exponent}`, fault: 'no_value' };
}

/**
 * Returns the exponent that applied when the value was read, or the reason why the exponent is unusable. Returns
 * `undefined` if the scale register was not read before and after the value.
 */
function exponentOf(value: Response, scale: Item, { spec }: ModbusPoint): number | string | undefined {
  if (scale.error !== undefined) return scale.error.message;
  const exponentIn = ({ address, data }: Response) => decode(data, address, spec.scaleRegister!) as number;
  const { first, latest } = scale;
  let exponent: number;
  if (contains(value, scale)) {
    exponent = exponentIn(value);
  } else {
    if (first === undefined || latest === undefined) return undefined;
    if (first.index > value.index || latest.index < value.index) return undefined;
    exponent = exponentIn(first);
    if (exponentIn(latest) !== exponent) return 'changed while the value was read';
  }
  if (exponent === NOT_IMPLEMENTED) return 'contains 0x8000, which means "not implemented"';
  if (Math.abs(exponent) <= MAX_EXPONENT) return exponent;
  return `contains ${exponent}, but the exponent must be between -10 and 10`;
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
