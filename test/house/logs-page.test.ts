import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findLogEvents } from './log-events.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/reference/logs.md'), 'utf8');
const rows = [...PAGE.matchAll(/^\| `([a-z_]+\.[a-z0-9_]+)` \| ([^|]+) \| ([^|]+) \|(.*)\|$/gm)].map(
  ([, event, level, meaning, action]) => ({ event: event!, level: level!, meaning: meaning!, action: action!.trim() }),
);
const { events, unreadable, misnamed, misworded } = findLogEvents();

describe('docs/reference/logs.md', () => {
  it('lists exactly the events that the source can log', () => {
    expect(rows.map(({ event }) => event).sort()).toEqual([...events.keys()].sort());
  });

  it('lists every level at which an event is logged', () => {
    for (const { event, level } of rows) {
      for (const known of events.get(event) ?? []) expect(level, event).toContain(known);
    }
  });

  it('describes the corrective action for every warning that requires intervention', () => {
    for (const { event, level, meaning, action } of rows) {
      if (!/^(fatal|error)/.test(level) || event.startsWith('sandbox.')) continue;
      expect(action || (meaning.includes('again') && meaning), event).not.toBe('');
    }
  });

  it('is checked against the events of all log calls', () => {
    expect(unreadable).toEqual([]);
    expect(events.size).toBeGreaterThan(100);
  });

  it('contains only camelCase field names, with `error` and `code` for errors', () => {
    expect(misnamed).toEqual([]);
  });

  it('contains only lowercase messages without a full stop', () => {
    expect(misworded).toEqual([]);
  });

  it('contains the hints that it refers to', () => {
    for (const { event, action } of rows) {
      for (const [, other] of action.matchAll(/`([a-z]+\.[a-z_]+)`/g))
        expect(events.has(other!), `${event}: ${other}`).toBe(true);
    }
  });
});
