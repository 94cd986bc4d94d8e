/**
 * Reads the registers of a device in as few requests (blocks) as possible.
 *
 * If the device rejects a block, its registers are read one by one in the same poll. Those that it rejects are retried
 * separately after 5, 10, 20 s, and so on, and blocks are planned around them. If it returns all of them, it rejects the
 * unused registers between them, or the length of the block: later blocks omit these gaps, or are half as long. Registers
 * with invalid responses and other failures are retried in the same way.
 */
import type { Clock } from '../../base/clock.ts';
import type { Reading } from '../intake/gate.ts';
import type { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { ModbusError } from './modbus-error.ts';
import { decode, isBits, type ModbusTable, type ModbusValue, registerText, type Span } from './register.ts';

export type ModbusPoint = Point<ModbusValue>;

interface BlockReaderOptions {
  /** Name of the source in tags.yaml. */
  source: string;
  points: readonly ModbusPoint[];
  /** Maximum number of registers per request. */
  maxRegisters: number;
  /** Sends one request. Rejects with a `ModbusError`. */
  read(span: Span, signal: AbortSignal): Promise<Buffer>;
  clock: Clock;
  trouble: TroubleLog;
}

/** Result of reading all points once. */
export interface Poll {
  readings: Reading[];
  /** Number of failed requests. */
  errors: number;
  /** Whether the device responded, with values or an exception. */
  hasResponded: boolean;
  /** Reason why the device does not respond, or stopped responding. */
  problem: ModbusError | undefined;
}

/** The values in the same registers, for example the bits of one register. */
interface Item extends Span {
  points: ModbusPoint[];
  /** Set if the registers could not be read. `count`: number of consecutive failures. */
  failure?: { error: ModbusError; count: number; dueMs: number } | undefined;
}

/** A request, and the items that it covers. */
interface Block extends Span {
  items: Item[];
}

/** `skipped`: items that are retried later. `untilMs`: time at which the first of them is due. */
interface Plan {
  blocks: readonly Block[];
  skipped: readonly Item[];
  untilMs: number;
}

/** A register contains 16 bits, so this many coils occupy the same space in a response. */
const BITS_PER_REGISTER = 16;
/** Maximum number of unused registers between two values in a block. Reading them is cheaper than another request. */
const MAX_GAP = 8;
/** Pauses before retries within one poll while a device is busy. */
const BUSY_PAUSES_MS = [100, 200, 400];
/** Maximum number of attempts within one poll in case of invalid responses, for example because of line noise. */
const GARBLED_TRIES = 3;
const FIRST_RETRY_MS = 5_000;
const MAX_REJECTED_MS = 10 * 60_000;
/** Shorter after other failures, because they may be temporary, for example those of a faulty sensor. */
const MAX_FAILED_MS = 60_000;
const ILLEGAL_FUNCTION = 1;

export class BlockReader {
  readonly #options: BlockReaderOptions;
  readonly #items: readonly Item[];
  /** Unused registers that the device rejects in a block. */
  readonly #gaps: Span[] = [];
  /** Maximum length of a block, if the device rejects longer ones. */
  readonly #maxLengths = new Map<ModbusTable, number>();
  #plan: Plan | undefined;

  constructor(options: BlockReaderOptions) {
    this.#options = options;
    this.#items = itemsOf(options.points);
  }

  /** Points that could not be read, with their errors. */
  failures(): { point: ModbusPoint; error: ModbusError }[] {
    return this.#items.flatMap(({ points, failure }) =>
      failure === undefined ? [] : points.map((point) => ({ point, error: failure.error })),
    );
  }

  /** Reads all points once. Rejects only if the signal aborts. */
  async poll(signal: AbortSignal): Promise<Poll> {
    const poll: Poll = { readings: [], errors: 0, hasResponded: false, problem: undefined };
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#plan === undefined || nowMs >= this.#plan.untilMs) this.#plan = this.#planAt(nowMs);
    const { blocks, skipped } = this.#plan;
    addFailures(poll, skipped, undefined);
    const unsupported = new Map<ModbusTable, ModbusError>();
    for (const block of blocks) {
      const { table, items } = block;
      if (poll.problem?.isUnreachable) addFailures(poll, items, undefined);
      else if (unsupported.has(table)) this.#fail(poll, items, unsupported.get(table)!);
      else if (await this.#readBlock(poll, block, signal)) unsupported.set(table, items[0]!.failure!.error);
    }
    return poll;
  }

  /** Returns whether the device does not support the table. */
  async #readBlock(poll: Poll, block: Block, signal: AbortSignal): Promise<boolean> {
    const { items } = block;
    const response = await this.#request(poll, block, items, signal);
    if (response?.failure !== 'exception' || response.isBusy || items.length === 1) {
      if (response) this.#fail(poll, items, response);
      return false;
    }
    let failed = 0;
    for (const [at, item] of items.entries()) {
      const error = await this.#request(poll, item, [item], signal);
      if (error === undefined) continue;
      failed++;
      const isUnsupported = at === 0 && [response, error].every(({ exception }) => exception === ILLEGAL_FUNCTION);
      this.#fail(poll, isUnsupported || error.isUnreachable ? items.slice(at) : [item], error);
      if (isUnsupported || error.isUnreachable) return isUnsupported;
    }
    if (failed === 0 && response.isRejection) this.#narrow(block);
    return false;
  }

  /** Reads a span and adds the values of its items. Returns the error if there is no response with values. */
  async #request(
    poll: Poll,
    span: Span,
    items: readonly Item[],
    signal: AbortSignal,
  ): Promise<ModbusError | undefined> {
    const { read, clock } = this.#options;
    const counted = (error: unknown) => {
      poll.errors++;
      throw error;
    };
    const response = await readPatiently(() => read(span, signal).catch(counted), clock, signal);
    const error = response instanceof ModbusError ? response : undefined;
    if (error === undefined || error.failure === 'exception') {
      poll.hasResponded = true;
      poll.problem = undefined;
    } else if (error.isUnreachable || !poll.hasResponded) {
      poll.problem = error;
    }
    if (response instanceof ModbusError) return response;
    for (const item of items) {
      for (const point of item.points) poll.readings.push(readingOf(point, span.address, response));
      if (item.failure !== undefined) this.#recover(item);
    }
    return undefined;
  }

  /** Records that items could not be read. Retries them later, unless the device or its connection is unresponsive. */
  #fail(poll: Poll, items: readonly Item[], error: ModbusError): void {
    addFailures(poll, items, error.isUnreachable ? undefined : error.message);
    if (error.isUnreachable) return;
    this.#plan = undefined;
    const nowMs = this.#options.clock.monotonicMs();
    const maxMs = error.isRejection ? MAX_REJECTED_MS : MAX_FAILED_MS;
    for (const item of items) {
      const count = (item.failure?.count ?? 0) + 1;
      const retryInMs = error.isBusy ? 0 : Math.min(maxMs, FIRST_RETRY_MS * 2 ** (count - 1));
      item.failure = { error, count, dueMs: nowMs + retryInMs };
      if (count === 1) this.#report(item, error, retryInMs);
    }
  }

  #report({ points }: Item, { message: error, hint, failure }: ModbusError, retryInMs: number): void {
    const { trouble } = this.#options;
    for (const point of points) {
      const fields = { ...this.#fieldsOf(point), error, hint, retryInMs };
      if (failure === 'garbled') {
        trouble.report(
          { event: 'modbus.invalid_response', ...fields },
          'invalid response from Modbus device',
          point.name,
        );
      } else {
        trouble.report({ event: 'modbus.unreadable', ...fields }, 'failed to read register', point.name);
      }
    }
  }

  #recover(item: Item): void {
    item.failure = undefined;
    this.#plan = undefined;
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

  /** Adapts the plan to a device that rejects a block but returns all of its items. */
  #narrow({ table, address, length, items }: Block): void {
    let end = address;
    const gaps: Span[] = [];
    for (const item of items) {
      if (item.address > end) gaps.push({ table, address: end, length: item.address - end });
      end = Math.max(end, endOf(item));
    }
    this.#gaps.push(...gaps);
    if (gaps.length === 0) this.#maxLengths.set(table, length >> 1);
    this.#plan = undefined;
  }

  /** Plans blocks of the readable items, and separate ones of the items that are due. */
  #planAt(nowMs: number): Plan {
    const dueMs = (item: Item) => item.failure?.dueMs ?? Number.POSITIVE_INFINITY;
    const failed = this.#items.filter(({ failure }) => failure !== undefined);
    const skipped = failed.filter((item) => dueMs(item) > nowMs);
    const readable = this.#blocksOf(
      this.#items.filter(({ failure }) => failure === undefined),
      failed,
    );
    const due = this.#blocksOf(
      failed.filter((item) => dueMs(item) <= nowMs),
      skipped,
    );
    return { blocks: [...readable, ...due], skipped, untilMs: Math.min(...failed.map(dueMs)) };
  }

  /** Combines items to blocks without the items `avoided`. */
  #blocksOf(items: readonly Item[], avoided: readonly Span[]): Block[] {
    const blocks: Block[] = [];
    for (const item of items) {
      const { table, address, length } = item;
      const block = blocks.at(-1);
      const end = Math.max(endOf(item), block === undefined ? 0 : endOf(block));
      const isAvoided = (one: Span) => one.table === table && one.address < end && endOf(one) > block!.address;
      if (
        block?.table === table &&
        address - endOf(block) <= MAX_GAP &&
        end - block.address <= this.#maxLengthOf(table) &&
        !avoided.some(isAvoided) &&
        !this.#gaps.some(isAvoided)
      ) {
        block.items.push(item);
        block.length = end - block.address;
      } else {
        blocks.push({ table, address, length, items: [item] });
      }
    }
    return blocks;
  }

  #maxLengthOf(table: ModbusTable): number {
    const { maxRegisters } = this.#options;
    return this.#maxLengths.get(table) ?? (isBits(table) ? maxRegisters * BITS_PER_REGISTER : maxRegisters);
  }
}

/**
 * Sends a request, repeatedly if the device is busy or its response is invalid. Returns the error of the final attempt.
 * Rejects if the signal aborts.
 */
export async function readPatiently(
  read: () => Promise<Buffer>,
  clock: Clock,
  signal: AbortSignal,
): Promise<Buffer | ModbusError> {
  for (let tries = 1; ; tries++) {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof ModbusError)) throw error;
      const pauseMs = error.isBusy ? BUSY_PAUSES_MS[tries - 1] : undefined;
      if (pauseMs !== undefined) await clock.sleep(pauseMs, signal);
      else if (error.failure !== 'garbled' || tries >= GARBLED_TRIES) return error;
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

function addFailures({ readings }: Poll, items: readonly Item[], failure: string | undefined): void {
  for (const { points } of items) for (const point of points) readings.push({ point, failure });
}

/** Returns the items in the order of their tables and addresses. */
function itemsOf(points: readonly ModbusPoint[]): Item[] {
  const keyOf = ({ spec: { register } }: ModbusPoint) => `${register.table} ${register.address} ${register.length}`;
  const items = [...Map.groupBy(points, keyOf).values()].map((same) => {
    const { table, address, length } = same[0]!.spec.register;
    return { table, address, length, points: same };
  });
  return items.sort((a, b) => a.table.localeCompare(b.table) || a.address - b.address || a.length - b.length);
}

function endOf({ address, length }: Span): number {
  return address + length;
}
