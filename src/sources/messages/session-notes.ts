/** Stores the unacknowledged messages of a stream in the source's notes. */
import type { Note } from '../../buffer/client/notes.ts';

const UNCONFIRMED = 'unconfirmed/';
const NOTHING: readonly Note[] = [];

/** Messages from one batch that have not been acknowledged yet. */
interface Group {
  left: number;
  note: Note;
}

export class SessionNotes {
  readonly #beginning: string;
  /** Messages restored from a previous process. */
  readonly #restored: (readonly [messageId: number, hash: string])[] = [];
  readonly #groupOf = new Map<number, Group>();
  #turn: Group | undefined;
  /** Names of notes to remove from disk. */
  #over: string[] = [];
  #nextGroup = 1;

  /** `notes`: notes stored by a previous process, by name without `source/<name>/`. */
  constructor(source: string, notes: ReadonlyMap<string, string>) {
    this.#beginning = `source/${source}/`;
    const groups = [...notes].filter(([name]) => name.startsWith(UNCONFIRMED));
    const inOrder = groups.map(([name, text]) => [Number(name.slice(UNCONFIRMED.length)), text] as const);
    // A reused message ID refers to the later message.
    for (const [seq, text] of inOrder.toSorted(([one], [other]) => one - other)) this.#restore(seq, text);
  }

  #restore(seq: number, text: string): void {
    const parts = text.trim().split(' ');
    const group: Group = { left: 0, note: this.#note(`${UNCONFIRMED}${seq}`, text) };
    for (let at = 0; at + 1 < parts.length; at += 2) {
      const messageId = Number(parts[at]);
      this.#restored.push([messageId, parts[at + 1]!]);
      this.#join(group, messageId);
    }
    this.#nextGroup = Math.max(this.#nextGroup, seq + 1);
  }

  /** Messages that a previous process stored and did not acknowledge. */
  get unconfirmed(): Iterable<readonly [messageId: number, hash: string]> {
    return this.#restored;
  }

  /**
   * Records a message whose values are stored. Messages received in one event loop turn are written in one batch and
   * share a note, which is returned for the first message and updated for the others.
   */
  record(messageId: number, hash: string): readonly Note[] {
    const fresh = this.#turn === undefined ? this.#beginGroup() : undefined;
    const group = this.#turn ?? fresh!;
    this.#turn = group;
    group.note.text += `${messageId} ${hash} `;
    this.#join(group, messageId);
    return fresh ? [fresh.note] : NOTHING;
  }

  #join(group: Group, messageId: number): void {
    const before = this.#groupOf.get(messageId);
    if (before && --before.left === 0) this.#over.push(before.note.name);
    group.left++;
    this.#groupOf.set(messageId, group);
  }

  #beginGroup(): Group {
    const seq = this.#nextGroup++;
    const group: Group = { left: 0, note: this.#note(`${UNCONFIRMED}${seq}`, '') };
    queueMicrotask(() => {
      this.#turn = undefined;
    });
    return group;
  }

  /**
   * Records sent acknowledgements. Returns the notes that can be removed because all their messages are acknowledged.
   */
  forget(messageIds: readonly number[]): readonly Note[] {
    if (messageIds.length === 0 && this.#over.length === 0) return NOTHING;
    const gone: Note[] = this.#over.splice(0).map((name) => ({ name, text: undefined }));
    for (const messageId of messageIds) {
      const group = this.#groupOf.get(messageId);
      if (!group) continue;
      this.#groupOf.delete(messageId);
      if (--group.left === 0 && group !== this.#turn) gone.push({ name: group.note.name, text: undefined });
    }
    return gone;
  }

  #note(name: string, text: string | undefined): Note {
    return { name: this.#beginning + name, text };
  }
}
