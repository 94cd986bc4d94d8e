import { isBits, type ModbusRegister, type ModbusTable } from './register.ts';

/** A read request and the values that it covers. */
export interface ReadRequest<P> extends Span {
  /** Ordered by address and length. */
  points: P[];
}

/** Consumer of a register, for example a `Point` of this kind. */
export interface RegisterPoint {
  spec: { register: ModbusRegister };
}

/** A register contains 16 bits, so this many coils occupy the same space in a response. */
const BITS_PER_REGISTER = 16;
/**
 * Maximum number of unused registers between two values in a request. Reading them is cheaper than another request,
 * unless the device rejects them.
 */
const MAX_GAP = 8;

/**
 * Plans the minimum number of requests for the points. Adjacent registers share a request, rejected registers are
 * omitted, and registers due for a retry are requested separately.
 */
export function planRequests<P extends RegisterPoint>(
  points: readonly P[],
  rejected: RejectedRegisters,
  nowMs: number,
  maxRegisters: number,
): ReadRequest<P>[] {
  const requests: ReadRequest<P>[] = [];
  const open = new Map<string, ReadRequest<P>>();
  const placed = points.map((point) => ({ point, ...spanOf(point.spec.register) }));
  placed.sort((a, b) => a.address - b.address || a.length - b.length);
  for (const { point, ...span } of placed) {
    if (rejected.isRejected(span, nowMs)) continue;
    const current = open.get(span.table);
    if (current !== undefined && joins(current, span, rejected, maxRegisters)) {
      current.length = Math.max(current.length, span.address + span.length - current.address);
      current.points.push(point);
      continue;
    }
    const request = { ...span, points: [point] };
    requests.push(request);
    open.set(span.table, request);
  }
  return requests;
}

function joins(request: Span, span: Span, rejected: RejectedRegisters, maxRegisters: number): boolean {
  const isSame = request.address === span.address && request.length === span.length;
  // Two bits of one register share a request, even if the register is due for a retry.
  if (isSame) return true;
  const max = maxLength(span.table, maxRegisters);
  const end = Math.max(request.address + request.length, span.address + span.length);
  const isNear = span.address - (request.address + request.length) <= MAX_GAP && end - request.address <= max;
  return isNear && rejected.mayJoin(request, { ...span, length: end - span.address });
}

/** Returns the maximum number of registers or bits per request. */
export function maxLength(table: ModbusTable, maxRegisters: number): number {
  return isBits(table) ? maxRegisters * BITS_PER_REGISTER : maxRegisters;
}

/**
 * Splits a rejected request into two halves to find the missing register. Returns `undefined` if all values in the
 * request use the same registers.
 */
export function halvesOf<P extends RegisterPoint>({
  points,
}: ReadRequest<P>): [ReadRequest<P>, ReadRequest<P>] | undefined {
  const keys = points.map((point) => keyOf(spanOf(point.spec.register)));
  const starts = [...keys.keys()].filter((at) => at > 0 && keys[at] !== keys[at - 1]);
  if (starts.length === 0) return undefined;
  const middle = starts[(starts.length - 1) >> 1]!;
  return [requestFor(points.slice(0, middle)), requestFor(points.slice(middle))];
}

function requestFor<P extends RegisterPoint>(points: P[]): ReadRequest<P> {
  const spans = points.map((point) => spanOf(point.spec.register));
  const { table, address } = spans[0]!;
  const end = Math.max(...spans.map((span) => span.address + span.length));
  return { table, address, length: end - address, points };
}

/** A range of registers or bits. */
export interface Span {
  table: ModbusTable;
  address: number;
  length: number;
}

function spanOf({ table, address, length }: ModbusRegister): Span {
  return { table, address, length };
}

/** Time after which rejected registers are requested again, because device firmware and modules can change. */
const REMEMBERED_MS = 10 * 60_000;
/**
 * Time after which registers rejected with "device failure" are requested again. Shorter, because a faulty sensor may
 * be the cause.
 */
const FAILURE_REMEMBERED_MS = 60_000;

/**
 * Ranges that a device rejects: registers that do not exist, and addresses that cannot be within one request (because
 * of a gap between two registers, or a size limit). Each range is remembered separately and for a limited time.
 */
export class RejectedRegisters {
  readonly #registers = new Map<string, { span: Span; untilMs: number }>();
  /** Addresses, by table, at which a new request must begin. */
  readonly #cuts = new Map<string, { table: ModbusTable; address: number; untilMs: number }>();

  /** Whether no range is rejected. In this case, the plan does not depend on the current time. */
  get isEmpty(): boolean {
    return this.#registers.size === 0 && this.#cuts.size === 0;
  }

  /** Records that the device rejected a request for only this register with this exception code. */
  reject(register: ModbusRegister, code: number, nowMs: number): void {
    const span = spanOf(register);
    const untilMs = nowMs + (code === 4 ? FAILURE_REMEMBERED_MS : REMEMBERED_MS);
    this.#registers.set(keyOf(span), { span, untilMs });
  }

  /** Records that the device returned these registers. */
  allow(span: Span): void {
    this.#registers.delete(keyOf(span));
  }

  /** Records that the device returns the registers on both sides of this address, but not in one request. */
  cut(table: ModbusTable, address: number, nowMs: number): void {
    this.#cuts.set(`${table} ${address}`, { table, address, untilMs: nowMs + REMEMBERED_MS });
  }

  isRejected(span: Span, nowMs: number): boolean {
    const found = this.#registers.get(keyOf(span));
    return found !== undefined && nowMs < found.untilMs;
  }

  removeExpiredCuts(nowMs: number): void {
    for (const [key, { untilMs }] of this.#cuts) if (nowMs >= untilMs) this.#cuts.delete(key);
  }

  /** Returns whether one request may span from `first` to the end of `next`. */
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
