/** Inbox interfaces for its readers in the main thread: access, reactions, and rules on values. */
import type { Journal } from '../reactions/journal.ts';
import type { RuleStore, StoredRule } from '../reactions/values/value-rules.ts';
import type { Remote } from '../store/store-api.ts';
import { identityOf } from '../webhook/identity.ts';
import type { Inbox } from '../webhook/inbox.ts';
import { parsed } from '../webhook/received-event.ts';

/** Returns the access events, with payloads that are parsed on demand. */
export function accessFeedOf(inbox: Remote<Inbox>) {
  return {
    ofAccess: async (limit: number, afterId: number) => (await inbox.ofAccess(limit, afterId)).map(parsed),
  };
}

/** Stores the events of rules on values in the inbox, and the rule state as a note in the same transaction. */
export function ruleStoreOf(inbox: Remote<Inbox>, inserted: () => void): RuleStore {
  const noteOf = (rule: string) => `rule/${rule}`;
  return {
    read: async (rule) => {
      const text = await inbox.note(noteOf(rule));
      return text === undefined ? undefined : (JSON.parse(text) as StoredRule);
    },
    add: async ({ eventType, occurredAtMs, payload }, rule, state) => {
      const bytes = Buffer.from(payload);
      // Two events of a rule can have the same content, but not the same number.
      const identity = identityOf(Buffer.from(`${rule}/${state.serial}/${payload}`));
      const note = { name: noteOf(rule), value: JSON.stringify(state) };
      const arrived = { identity, eventType, occurredAtMs, receivedAtMs: occurredAtMs, payload: bytes, note };
      await inbox.insertMany([{ ...arrived, unrecognised: false }]);
      inserted();
    },
  };
}

/** Returns the events for reactions, with payloads that are parsed on demand. */
export function journalOf(inbox: Remote<Inbox>): Journal {
  return {
    fresh: async (limit, afterId) => (await inbox.fresh(limit, afterId)).map(parsed),
    due: async (limit, afterId) => (await inbox.due(limit, afterId)).map(parsed),
    retried: async (limit, afterId) => (await inbox.retried(limit, afterId)).map(parsed),
    markRunning: (id) => inbox.markRunning(id),
    record: (id, progress, attempt) => inbox.record(id, progress, attempt),
    finish: (id, state, retryInMs) => inbox.finish(id, state, retryInMs),
    replay: (id) => inbox.replay(id),
    cooldown: (reaction, object) => inbox.cooldown(reaction, object),
    setCooldown: (reaction, object, restMs) => inbox.setCooldown(reaction, object, restMs),
  };
}
