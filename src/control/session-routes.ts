/** What `tagferry session` asks: the tokens of the technical user, which are never given out. */
import type { Session } from '../platform/session/session.ts';
import { sessionReport } from '../platform/session/session-report.ts';
import type { ControlRoutes } from './control-server.ts';

/** `tryPosting`: whatever posts wait for, one is tried at once. */
export function sessionRoutes(session: Session, tryPosting: () => void): ControlRoutes {
  return {
    'session/show': async () => sessionReport(session),
    'session/renew': async () => {
      await session.renewNow();
      // Who renews by hand has mended something, or wants to know whether somebody has.
      tryPosting();
      return sessionReport(session);
    },
    'session/revoke': async () => {
      await session.revokeNow();
      return sessionReport(session);
    },
  };
}
