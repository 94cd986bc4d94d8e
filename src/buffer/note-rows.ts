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

/** What the disk garbled is left out: a fact that is not known costs less than one that is not true. */
export function readNotes(statements: Statements, beginning: string): Note[] {
  return statements.listNotes
    .all(beginning, `${beginning}\u{10ffff}`)
    .filter(({ name, text, sum }) => sum === sumOf(name, text))
    .map(({ name, text }) => ({ name, text }));
}
