import type { Logger } from '../base/logger.ts';
import { ACCESS_EVENT_TYPES } from '../contract/events/names.ts';
import type { ArrivedAccessEvent } from './access-event.ts';

interface Applied {
  readonly cursor: number;
  apply(event: ArrivedAccessEvent): Promise<void>;
}

/**
 * Of events that a relay gives to many gateways, those that tell of this one's own user change what is held. Where its number is not
 * known none do: they are kept, and that is said once.
 */
export function ownAccessOnly(holds: Applied, userId: number | undefined, log: Logger): Applied {
  let isSaid = false;
  return {
    get cursor() {
      return holds.cursor;
    },
    async apply(event) {
      if (!isOfOneUser(event.eventType)) return holds.apply(event);
      if (userId !== undefined) {
        if (userOf(event.envelope) === userId) await holds.apply(event);
        return;
      }
      if (isSaid) return;
      isSaid = true;
      const hint = 'Set TECHNICAL_USER_ID to the number of the technical user.';
      log.warn(
        { event: 'access.user_unknown', hint },
        'events of access are kept and not acted on: whose they are is not known',
      );
    },
  };
}

/** Whether an event of access tells of another user than this gateway's, as far as that is known. */
export function isOfAnother(
  eventType: string,
  envelope: Readonly<Record<string, unknown>>,
  userId: number | undefined,
): boolean {
  return userId !== undefined && isOfOneUser(eventType) && userOf(envelope) !== userId;
}

function isOfOneUser(eventType: string): boolean {
  return (ACCESS_EVENT_TYPES as readonly string[]).includes(eventType);
}

function userOf(envelope: Readonly<Record<string, unknown>>): number | undefined {
  const { content } = envelope as { content?: { user?: { id?: unknown } | null } | null };
  const id = content?.user?.id;
  return typeof id === 'number' ? id : undefined;
}
