import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findLogEvents } from './log-events.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/logs.md'), 'utf8');
const rows = [...PAGE.matchAll(/^\| `([a-z_]+\.[a-z0-9_]+)` \| ([^|]+) \| ([^|]+) \|(.*)\|$/gm)].map(
  ([, event, level, meaning, action]) => ({ event: event!, level: level!, meaning: meaning!, action: action!.trim() }),
);
const { events, unreadable, misnamed, misworded } = findLogEvents();

describe('docs/logs.md', () => {
  it('lists every event that the source can log, once, and none that it cannot', () => {
    expect(rows.map(({ event }) => event).sort()).toEqual([...events.keys()].sort());
  });

  it('names every level at which an event is surely logged', () => {
    for (const { event, level } of rows) {
      for (const known of events.get(event) ?? []) expect(level, event).toContain(known);
    }
  });

  it('says of every warning that only a person can end what to do', () => {
    for (const { event, level, meaning, action } of rows) {
      if (!/^(fatal|error)/.test(level) || event.startsWith('sandbox.')) continue;
      expect(action || (meaning.includes('again') && meaning), event).not.toBe('');
    }
  });

  it('rests on a search that can read every name, and every line of the log has one', () => {
    expect(unreadable).toEqual([]);
    expect(events.size).toBeGreaterThan(100);
  });

  it('rests on lines whose fields are camelCase, the text of an error always `error`, its code `code`', () => {
    expect(misnamed).toEqual([]);
  });

  it('rests on messages in one style: no capital at the beginning, no full stop', () => {
    expect(misworded).toEqual([]);
  });

  it('names the hints that it points to', () => {
    for (const { event, action } of rows) {
      for (const [, other] of action.matchAll(/`([a-z]+\.[a-z_]+)`/g))
        expect(events.has(other!), `${event}: ${other}`).toBe(true);
    }
  });
});
