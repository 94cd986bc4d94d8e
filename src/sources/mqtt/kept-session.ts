/** What is known of a broker's session beyond the process, as notes of the source: filters, unconfirmed messages, retained ones. */
import type { KeptSession } from '../../broker/broker.ts';
import type { Filters } from '../../broker/subscriptions.ts';
import type { Note } from '../../buffer/client/notes.ts';

const FILTERS = 'filters';
const UNCONFIRMED = 'unconfirmed/';
const RETAINED = 'retained/';

/** Topics of which the last message is remembered. */
const MAX_TOPICS = 20_000;

/** Of a topic: hashes of the last message that was taken, and of the last one that came as retained. */
interface LastMessage {
  last: string;
  retained: string | undefined;
}

/** Messages of one batch that are not confirmed yet. */
interface Group {
  left: number;
  note: Note;
}

export class KeptNotes {
  readonly #beginning: string;
  readonly #notes: ReadonlyMap<string, string>;
  readonly #last = new Map<string, LastMessage>();
  readonly #unsaved = new Set<string>();
  /** What an earlier process left. */
  readonly #restored: (readonly [messageId: number, hash: string])[] = [];
  readonly #groupOf = new Map<number, Group>();
  #turn: Group | undefined;
  /** Notes whose messages all mean others by now. */
  #over: string[] = [];
  #nextGroup = 1;

  /** `notes` as an earlier process left them, by their names behind `source/<name>/`. */
  constructor(source: string, notes: ReadonlyMap<string, string>) {
    this.#beginning = `source/${source}/`;
    this.#notes = notes;
    for (const [name, text] of notes) {
      const [last = '', retained = last] = text.split(' ');
      if (name.startsWith(RETAINED)) this.#last.set(name.slice(RETAINED.length), { last, retained });
    }
    const groups = [...notes].filter(([name]) => name.startsWith(UNCONFIRMED));
    const inOrder = groups.map(([name, text]) => [Number(name.slice(UNCONFIRMED.length)), text] as const);
    // An id that was used again means the later message.
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

  /** `session`: what the filters belong to, the client and its broker. */
  session(session: string): KeptSession {
    const filters = this.#notes.get(FILTERS);
    const kept =
      filters === undefined ? undefined : (JSON.parse(filters) as { of: string; held: [string, 0 | 1 | 2][] });
    return { filters: kept?.of === session ? new Map(kept.held) : undefined, unconfirmed: this.#restored };
  }

  filters(session: string, held: Filters): Note {
    return this.#note(FILTERS, JSON.stringify({ of: session, held: [...held] }));
  }

  /**
   * A message whose values go to the disk. Those of one turn of the event loop, which go in one batch, share a note: gives it
   * with the first of them, and writes the others into it.
   */
  record(messageId: number, hash: string): Note[] {
    const fresh = this.#turn === undefined ? this.#beginGroup() : undefined;
    const group = this.#turn ?? fresh!;
    this.#turn = group;
    group.note.text += `${messageId} ${hash} `;
    this.#join(group, messageId);
    return fresh ? [fresh.note] : [];
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

  /** Messages whose confirmation was sent: what may go from the disk, once all of a note are. */
  forget(messageIds: readonly number[]): Note[] {
    const gone: Note[] = this.#over.splice(0).map((name) => ({ name, text: undefined }));
    for (const messageId of messageIds) {
      const group = this.#groupOf.get(messageId);
      if (!group) continue;
      this.#groupOf.delete(messageId);
      if (--group.left === 0 && group !== this.#turn) gone.push({ name: group.note.name, text: undefined });
    }
    return gone;
  }

  /** Whether a retained message is one that was taken, by itself or as it was published. */
  isKnown(topic: string, hash: string): boolean {
    const known = this.#last.get(topic);
    return known?.last === hash || known?.retained === hash;
  }

  /** The last message of a topic. Gives the note for one that is retained; others are told at a stop. */
  took(topic: string, hash: string, isRetained: boolean): Note[] {
    const retained = isRetained ? hash : this.#last.get(topic)?.retained;
    this.#last.delete(topic);
    this.#last.set(topic, { last: hash, retained });
    if (this.#last.size > MAX_TOPICS) this.#last.delete(this.#last.keys().next().value!);
    if (isRetained) this.#unsaved.delete(topic);
    else this.#unsaved.add(topic);
    return isRetained ? [this.#note(`${RETAINED}${topic}`, hash)] : [];
  }

  /** What is not written yet, for a stop. */
  rest(): Note[] {
    return [...this.#unsaved].flatMap((topic) => {
      const known = this.#last.get(topic);
      if (known === undefined) return [];
      const { last, retained = last } = known;
      return [this.#note(`${RETAINED}${topic}`, retained === last ? last : `${last} ${retained}`)];
    });
  }

  #note(name: string, text: string | undefined): Note {
    return { name: this.#beginning + name, text };
  }
}
