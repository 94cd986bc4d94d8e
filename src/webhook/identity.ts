import { createHash } from 'node:crypto';
import { canonicalise } from './canonical-json.ts';

/**
 * Bytes of an identity that are kept: 96 bits. No two of a gateway's events share them by accident, and finding a second
 * event for one that was seen stays out of reach.
 */
export const IDENTITY_BYTES = 12;

/**
 * By what an event is known (docs/architecture.md, must always hold 7): the SHA-256 of its canonical JSON, of the raw bytes where it
 * has none. So a push, a resend and an entry of the deliveries list whose members stand in another order are one event.
 */
export function identityOf(body: Uint8Array): Uint8Array {
  const text = decode(body);
  const form = text === undefined ? undefined : canonicalise(text);
  return digest(form ?? body);
}

/**
 * By what a delivery record is known. `scope` names one registration: ids count from 1 again on a platform that was set up
 * anew, and must not make its first events look seen.
 */
export function deliveryIdentity(scope: string, deliveryId: number): Uint8Array {
  // A NUL cannot start JSON, so that no event's identity is ever a delivery's.
  return digest(`\0delivery\0${scope}\0${deliveryId}`);
}

/** The body as text; `undefined` where it is not UTF-8. */
export function decode(body: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch {
    return undefined;
  }
}

function digest(of: string | Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(of).digest().subarray(0, IDENTITY_BYTES));
}
