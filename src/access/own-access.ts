import type { Logger } from '../base/logger.ts';
import { ACCESS_EVENT_TYPES } from '../contract/events/names.ts';
import type { ArrivedAccessEvent } from './access-event.ts';

interface Applied {
  readonly cursor: number;
  apply(event: ArrivedAccessEvent): Promise<void>;
}

/** User of this gateway, and the source of the id: TECHNICAL_USER_ID or the token response. */
export interface OwnUser {
  id: number;
  from: 'setting' | 'token';
}

export interface OwnAccessOptions {
  user(): OwnUser | undefined;
  /**
   * Whether a relay delivers the events of all users. If so, and the gateway's own user is unknown, all access events
   * are ignored.
   */
  isRelayed: boolean;
  log: Logger;
}

/**
 * Applies to `holds` only the access events of this gateway's own user (platform 6.3). A webhook receives only events
 * for the technical user of its subscription. Without a relay, events therefore also apply if the own user is unknown
 * or the event does not contain a user.
 */
export function ownAccessOnly(holds: Applied, { user, isRelayed, log }: OwnAccessOptions): Applied {
  let isReported = false;
  const warnOnce = (fields: Record<string, unknown>, message: string) => {
    if (!isReported) log.warn(fields, message);
    isReported = true;
  };
  return {
    get cursor() {
      return holds.cursor;
    },
    async apply(event) {
      const own = user();
      const named = userOf(event.envelope);
      if (!isOfOneUser(event.eventType)) return holds.apply(event);
      if (own === undefined && isRelayed) {
        const hint = 'Set TECHNICAL_USER_ID to the ID of the technical user.';
        return warnOnce({ event: 'access.user_unknown', hint }, 'technical user unknown, access events ignored');
      }
      const isOwn = own === undefined || named === own.id || (named === undefined && !isRelayed);
      if (isOwn) return holds.apply(event);
      if (isRelayed) return;
      const hint = 'Check TECHNICAL_USER_ID, and that the webhook belongs to the subscription of this technical user.';
      const fields = { event: 'access.other_user', eventType: event.eventType, user: named, ownUser: own?.id, hint };
      warnOnce(fields, 'access events of another user ignored');
    },
  };
}

/** Whether an access event concerns a user other than the known user of this gateway. */
export function isOfAnother(
  eventType: string,
  envelope: Readonly<Record<string, unknown>>,
  user: OwnUser | undefined,
): boolean {
  return user !== undefined && isOfOneUser(eventType) && userOf(envelope) !== user.id;
}

function isOfOneUser(eventType: string): boolean {
  return (ACCESS_EVENT_TYPES as readonly string[]).includes(eventType);
}

function userOf(envelope: Readonly<Record<string, unknown>>): number | undefined {
  const { content } = envelope as { content?: { user?: { id?: unknown } | null } | null };
  const id = content?.user?.id;
  return typeof id === 'number' ? id : undefined;
}
