import { type RefusedRegisters, type Span, spanOf } from './refused-registers.ts';
import type { ModbusRegister } from './register.ts';

/** One read of a device, and the values that it carries. */
export interface ReadRequest<P> extends Span {
  points: P[];
}

/** Something that a register is read for: a `Point` of the kind. */
export interface RegisterPoint {
  spec: { register: ModbusRegister };
}

/** The protocol allows 125 registers and 2,000 bits; some devices fewer. */
const MAX_REGISTERS = 120;
const MAX_BITS = 1_920;
/** Reading over a gap is cheaper than another request, until a device refuses the registers in it. */
const MAX_GAP = 8;

/**
 * The fewest requests that read what is wanted now: registers that lie near each other come together, what the device has refused is
 * left out, and what is to be tried again stands alone.
 */
export function planRequests<P extends RegisterPoint>(
  points: readonly P[],
  refused: RefusedRegisters,
  nowMs: number,
): ReadRequest<P>[] {
  const requests: ReadRequest<P>[] = [];
  const open = new Map<string, ReadRequest<P>>();
  const placed = points.map((point) => ({ point, ...spanOf(point.spec.register) }));
  placed.sort((a, b) => a.address - b.address || a.length - b.length);
  for (const { point, ...span } of placed) {
    const state = refused.stateOf(span, nowMs);
    if (state === 'refused') continue;
    const current = open.get(span.table);
    if (current !== undefined && joins(current, span, refused)) {
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

function joins(request: Span, span: Span, refused: RefusedRegisters): boolean {
  const isSame = request.address === span.address && request.length === span.length;
  // Two bits of one register, whatever became of it.
  if (isSame) return true;
  const max = span.table === 'coil' || span.table === 'discrete' ? MAX_BITS : MAX_REGISTERS;
  const end = Math.max(request.address + request.length, span.address + span.length);
  const isNear = span.address - (request.address + request.length) <= MAX_GAP && end - request.address <= max;
  return isNear && refused.mayJoin(request, { ...span, length: end - span.address });
}

/**
 * A refused request in two halves, to look for the register that the device does not have. `undefined` where all its values stand
 * in the same registers.
 */
export function halvesOf<P extends RegisterPoint>(
  request: ReadRequest<P>,
): [ReadRequest<P>, ReadRequest<P>] | undefined {
  const spans = new Map<string, ReadRequest<P>>();
  for (const point of request.points) {
    const span = spanOf(point.spec.register);
    const key = `${span.address}+${span.length}`;
    const found = spans.get(key);
    if (found) found.points.push(point);
    else spans.set(key, { ...span, points: [point] });
  }
  if (spans.size < 2) return undefined;
  const all = [...spans.values()];
  const middle = all.length >> 1;
  return [joined(all.slice(0, middle)), joined(all.slice(middle))];
}

function joined<P>(parts: readonly ReadRequest<P>[]): ReadRequest<P> {
  const address = Math.min(...parts.map((part) => part.address));
  const end = Math.max(...parts.map((part) => part.address + part.length));
  const points = parts.flatMap((part) => part.points);
  return { table: parts[0]!.table, address, length: end - address, points };
}
