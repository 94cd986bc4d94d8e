import { isoTime } from '../../base/amounts.ts';
import type { Action } from '../../config/action-kinds.ts';
import type { ActionKind } from '../action-kind.ts';
import { valuesAt } from '../content-path.ts';

interface LogAction extends Action {
  kind: 'log';
  level: 'debug' | 'info' | 'warn' | 'error';
}

/**
 * Logs the main fields of the event, but never the whole payload, because the systemd journal must not contain personal
 * data.
 */
export const LOG: ActionKind<LogAction> = {
  kind: 'log',
  shape: {
    enum: ['debug', 'info', 'warn', 'error'],
    description: 'Logs the event with this level.',
    examples: ['warn'],
  },

  read: ({ log }) => ({ kind: 'log', level: log as LogAction['level'] }),
  nameOf: ({ level }) => `log ${level}`,

  perform(action, { reaction, event }, { logger }) {
    const first = (path: string) => {
      const value = valuesAt(event.content, path)[0];
      if (typeof value === 'string') return value.slice(0, 200);
      return typeof value === 'number' ? value : undefined;
    };
    logger[action.level](
      {
        event: 'reaction.log',
        reaction,
        inboxId: event.id,
        digest: event.digest,
        eventType: event.eventType,
        occurredAt: isoTime(event.occurredAtMs),
        asset: event.assets[0],
        instrumentation: event.instrumentations[0],
        tag: event.tag?.slice(0, 200),
        key: first('data.key'),
        value: first('data.value'),
        threshold: first('threshold.name'),
        thresholdType: first('threshold.type'),
      },
      'event matched a reaction',
    );
    return { outcome: 'done' };
  },
};
