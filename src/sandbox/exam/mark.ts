/** One requirement of an exam, and how it was met. */
export interface Mark {
  /** Short name, stable: `forged`. */
  id: string;
  /** Section of docs/platform.md. */
  section: string;
  requirement: string;
  /** `unseen`: what it is about never happened. */
  state: 'held' | 'broken' | 'unseen';
  /** What was seen, in a few words. */
  seen: string;
}

/** Whether nothing was broken, and, where `everything` is asked for, nothing left unseen. */
export function isFull(marks: readonly Mark[], everything = true): boolean {
  return marks.every(({ state }) => state === 'held' || (!everything && state === 'unseen'));
}
