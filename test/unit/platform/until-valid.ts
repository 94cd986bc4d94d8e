import type { Session } from '../../../src/platform/session/session.ts';

/** Waits until calls receive a token. */
export async function untilValid(session: Session): Promise<void> {
  const patience = AbortSignal.timeout(10_000);
  while (session.snapshot().state !== 'valid') {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const forget = session.onChange(resolve);
    const giveUp = () => reject(new Error(`the session is ${session.snapshot().state}`));
    patience.addEventListener('abort', giveUp, { once: true });
    try {
      await promise;
    } finally {
      forget();
      patience.removeEventListener('abort', giveUp);
    }
  }
}
