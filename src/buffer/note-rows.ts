import type { Note } from './client/notes.ts';
import { type Statements, sumOf } from './tables.ts';

/** Facts that stand or fall with the values of a commit (`client/notes.ts`), as rows. */

/** Inside the transaction of a commit. */
export function writeNotes(statements: Statements, notes: readonly Note[]): void {
  for (const { name, text } of notes) {
    if (text === undefined) statements.dropNote.run(name);
    else statements.setNote.run(name, text, sumOf(name, text));
  }
}

/** A missing note costs at most a duplicate; reading without a bound would cost the start. */
const MAX_READ_CHARACTERS = 16 * 1024 * 1024;

/** Leaves out notes that the disk damaged: a missing fact costs less than a wrong one. */
export function readNotes(statements: Statements, beginning: string): Note[] {
  const notes: Note[] = [];
  let characters = 0;
  for (const { name, text, sum } of statements.listNotes.iterate(beginning, `${beginning}\u{10ffff}`)) {
    characters += name.length + text.length;
    if (characters > MAX_READ_CHARACTERS) break;
    if (sum === sumOf(name, text)) notes.push({ name, text });
  }
  return notes;
}
