import type { Clock } from '../base/clock.ts';
import type { Database } from '../base/database.ts';
import { AskedMemory } from './asked-memory.ts';
import { InboxNotes } from './inbox-notes.ts';
import { prepareStatements, prepareTables, type Statements } from './inbox-tables.ts';
import { parseAge, RunningAge } from './running-age.ts';
import { SeenMemory } from './seen-memory.ts';

/** The tables of the inbox and what stands over them, ready. */
export interface OpenedTables {
  statements: Statements;
  seen: SeenMemory;
  asked: AskedMemory;
  notes: InboxNotes;
  age: RunningAge;
}

/** Makes the tables where there are none. `boot` is the machine's boot id. */
export function openTables(database: Database, clock: Clock, boot: string): OpenedTables {
  prepareTables(database);
  const statements = prepareStatements(database);
  const seen = new SeenMemory(database);
  const notes = new InboxNotes(database);
  // Where the note is lost, nothing is younger than it was: else what was forgotten would be remembered anew, and the reverse.
  const lowestMs = Math.max(statements.newestAge.get() ?? 0, seen.newestAgeMs);
  const age = new RunningAge(parseAge(notes.get('age')), boot, clock.monotonicMs(), lowestMs);
  return { statements, seen, asked: new AskedMemory(database), notes, age };
}
