import { describe, expect, it } from 'vitest';
import type { ArrivedAccessEvent } from '../../../src/access/access-event.ts';
import { type OwnUser, ownAccessOnly } from '../../../src/access/own-access.ts';
import { LogCapture } from '../webhook/parts/listening.ts';

function event(user: unknown, eventType = 'asset_disappeared'): ArrivedAccessEvent {
  return { id: 1, eventType, occurredAtMs: undefined, envelope: { content: { asset: { id: 881 }, user } } };
}

/** Returns for each of these users whether events change the holds, and which events are logged. */
async function applied(own: OwnUser | undefined, isRelayed: boolean, users: unknown[]) {
  const log = new LogCapture();
  let count = 0;
  const holds = { cursor: 0, apply: async () => void count++ };
  const filtered = ownAccessOnly(holds, { user: () => own, isRelayed, log: log.log });
  const changes: boolean[] = [];
  for (const user of users) {
    const before = count;
    await filtered.apply(event(user));
    changes.push(count > before);
  }
  const events = [...log.text.matchAll(/"event":"([^"]+)"/g)].map((match) => match[1]);
  return { changes, events };
}

describe('access events', () => {
  const own: OwnUser = { id: 5, from: 'setting' };
  const users = [{ id: 5 }, { id: 6 }, { id: 7 }, null, undefined, { id: '5' }];

  it('without a relay apply only if they refer to the known user or to no user', async () => {
    expect(await applied(own, false, users)).toEqual({
      changes: [true, false, false, true, true, true],
      events: ['access.other_user'],
    });
  });

  it('without a relay apply to every user while the agent user is unknown', async () => {
    expect(await applied(undefined, false, users)).toEqual({ changes: users.map(() => true), events: [] });
  });

  it('from a relay apply only if they refer to the known user', async () => {
    expect(await applied(own, true, users)).toEqual({ changes: [true, false, false, false, false, false], events: [] });
  });

  it('from a relay are ignored while the agent user is unknown', async () => {
    expect(await applied(undefined, true, users)).toEqual({
      changes: users.map(() => false),
      events: ['access.user_unknown'],
    });
  });
});
