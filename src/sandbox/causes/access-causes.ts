import type { AccessEventType } from '../../contract/events.ts';
import type { Stage } from '../admin/stage.ts';
import { type Cause, isSeen, named, seenOne, TYPE_OF } from './cause.ts';

/** The going and the coming have times of their own: who orders events by `occurred_at` ends where the site does. */
const APART_MS = 1;

type Seen = keyof typeof TYPE_OF;

/** What a technical user begins and ceases to see. Something that is seen already goes away before it appears, and the other way round. */
export const ACCESS_CAUSES = {
  asset_appeared: appears('assets'),
  asset_disappeared: disappears('assets'),
  instrumentation_appeared: appears('instrumentations'),
  instrumentation_disappeared: disappears('instrumentations'),
  node_appeared: appears('nodes'),
  node_disappeared: disappears('nodes'),
} satisfies Record<AccessEventType, Cause>;

function appears(kind: Seen): Cause {
  const type = TYPE_OF[kind];
  return {
    does: 'gives the technical user all permissions on it',
    object: kind,
    takes: [],
    trigger: (stage, { object }) => {
      const unseen = stage.site.all(kind).find(({ id }) => !isSeen(stage, { type, id }));
      const { id } = object === undefined ? (unseen ?? seenOne(stage, kind, undefined)) : named(stage, kind, object);
      if (isSeen(stage, { type, id })) {
        stage.takePermission({ type, id });
        stage.clock.advance(APART_MS);
      }
      stage.grantPermission({ type, id });
      return id;
    },
  };
}

function disappears(kind: Seen): Cause {
  const type = TYPE_OF[kind];
  return {
    does: 'takes all permissions on it from the technical user, inherited ones too',
    object: kind,
    takes: [],
    trigger: (stage, { object }) => {
      const { id } = object === undefined ? oneToLose(stage, kind) : named(stage, kind, object);
      if (!isSeen(stage, { type, id })) {
        stage.grantPermission({ type, id });
        stage.clock.advance(APART_MS);
      }
      stage.takePermission({ type, id });
      return id;
    },
  };
}

/** One that is seen, or else any: it is given first. */
function oneToLose(stage: Stage, kind: Seen): { id: number } {
  const all = stage.site.all(kind);
  return all.find(({ id }) => isSeen(stage, { type: TYPE_OF[kind], id })) ?? all[0] ?? seenOne(stage, kind, undefined);
}
