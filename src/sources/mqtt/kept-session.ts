/**
 * State of a broker's session that survives the process, as notes of the source: filters, unconfirmed messages, and the last message of
 * each topic. Topics are stored by their hash and only the latest `MAX_TOPICS`, on disk as in memory, so neither the number nor the length
 * of topics affects the size of the database or of a start. A topic beyond the bound costs one duplicate when its retained message arrives
 * again.
 */
import { hash as digest } from 'node:crypto';
import type { KeptSession } from '../../broker/broker.ts';
import type { Filters } from '../../broker/subscriptions.ts';
import type { Note } from '../../buffer/client/notes.ts';

const FILTERS = 'filters';
const UNCONFIRMED = 'unconfirmed/';
const TOPIC = 'topic/';

/** Topics whose last message is stored. */
const MAX_TOPICS = 20_000;

/** Hashes of the last message of a topic and of its last message with the retain flag. */
interface LastMessage {
  last: string;
  retained: string | undefined;
  /** Text of the note on disk. */
  saved: string | undefined;
}

/** Messages of one batch that are not confirmed yet. */
interface Group {
  left: number;
  note: Note;
}

export class KeptNotes {
  readonly #beginning: string;
  readonly #notes: ReadonlyMap<string, string>;
  /** By the hash of the topic, the latest one last. */
  readonly #last = new Map<string, LastMessage>();
  /** What an earlier process left. */
  readonly #restored: (readonly [messageId: number, hash: string])[] = [];
  readonly #groupOf = new Map<number, Group>();
  #turn: Group | undefined;
  /** Names of notes to remove from disk. */
  #over: string[] = [];
  #nextGroup = 1;

  /** `notes` as an earlier process left them, by their names behind `source/<name>/`. */
  constructor(source: string, notes: ReadonlyMap<string, string>) {
    this.#beginning = `source/${source}/`;
    this.#notes = notes;
    for (const [name, text] of notes) {
      if (!name.startsWith(TOPIC)) continue;
      const [last = '', retained = last] = text.split(' ');
      this.#last.set(name.slice(TOPIC.length), { last, retained, saved: text });
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

  /** Whether a retained message is the last one of its topic, as retained or as published. */
  isKnown(topic: string, hash: string): boolean {
    const known = this.#last.get(topicHash(topic));
    return known?.last === hash || known?.retained === hash;
  }

  /** Records the last message of a topic. A retained message whose values are stored has a note at once, others at a stop. */
  took(topic: string, hash: string, isRetained: boolean, isStored: boolean): Note[] {
    const key = topicHash(topic);
    const before = this.#last.get(key);
    const entry = { last: hash, retained: isRetained ? hash : before?.retained, saved: before?.saved };
    this.#last.delete(key);
    this.#last.set(key, entry);
    if (this.#last.size > MAX_TOPICS) this.#evict();
    return isRetained && isStored ? this.#save(key, entry) : [];
  }

  #evict(): void {
    const [key, { saved }] = this.#last.entries().next().value!;
    this.#last.delete(key);
    if (saved !== undefined) this.#over.push(`${this.#beginning}${TOPIC}${key}`);
  }

  #save(key: string, entry: LastMessage): Note[] {
    const { last, retained = last } = entry;
    const text = retained === last ? last : `${last} ${retained}`;
    if (entry.saved === text) return [];
    entry.saved = text;
    return [this.#note(`${TOPIC}${key}`, text)];
  }

  /** Notes that are not on disk yet, for a stop. */
  rest(): Note[] {
    return [...this.#last].flatMap(([key, entry]) => this.#save(key, entry));
  }

  #note(name: string, text: string | undefined): Note {
    return { name: this.#beginning + name, text };
  }
}

function topicHash(topic: string): string {
  return digest('sha256', topic, 'base64url').slice(0, 22);
}
