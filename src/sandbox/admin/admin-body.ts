import { insteadOf } from '../../base/nearest.ts';
import { type Call, objectBody } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import { type AdminOperation, membersOf } from './admin-operations.ts';

/** The body of an admin request; none is an empty one. 400 for a member that the operation does not have. */
export function adminBody(call: Call, path: string): Record<string, unknown> {
  if (call.raw.length === 0) return {};
  const body = objectBody(call);
  mustKnow(body, membersOf(call.method as AdminOperation['method'], path));
  return body;
}

/** 400 for a member that is none of those known. */
export function mustKnow(body: Record<string, unknown>, known: readonly string[]): void {
  const unknown = Object.keys(body).find((name) => !known.includes(name));
  if (unknown !== undefined) throw refusal(400, `is unknown: ${insteadOf(unknown, known)}`, unknown.slice(0, 60));
}
