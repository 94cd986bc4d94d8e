import type { Clock } from '../base/clock.ts';
import type { Session } from '../platform/session/session.ts';

/** READY waits for the first login to be tried, but not for a platform that does not answer. */
const FIRST_LOGIN_MS = 10_000;

/** Resolves when the first login has succeeded or failed, or has taken too long. */
export function firstLoginTried(session: Pick<Session, 'snapshot' | 'onChange'>, clock: Clock): Promise<void> {
  const tried = () => ['valid', 'waiting', 'revoked'].includes(session.snapshot().state);
  return new Promise<void>((resolve) => {
    const forget = session.onChange(() => tried() && done());
    const cancel = clock.after(FIRST_LOGIN_MS, () => done());
    const done = () => {
      forget();
      cancel();
      resolve();
    };
    if (tried()) done();
  });
}
