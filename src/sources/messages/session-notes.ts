/**
 * Persists broker session state in the source's notes: filters, unacknowledged messages, and the latest message of each
 * topic. Only the `MAX_TOPICS` most recent topics are stored, as hashes, to limit the database size and the startup
 * time. For topics beyond the limit, a retained message is stored again when it is redelivered.
 */
import type { SavedSession } from '../../broker/broker.ts';
import type { Filters } from '../../broker/subscriptions.ts';
import { digestOf } from '../../broker/unconfirmed.ts';
import type { Note } from '../../buffer/client/notes.ts';

const FILTERS = 'filters';
const UNCONFIRMED = 'unconfirmed/';
const TOPIC = 'topic/';

/** Maximum number of topics whose latest message is stored. */
const MAX_TOPICS = 20_000;
/** Maximum number of topics whose hash is cached. */
const MAX_KEYS = 1_000;
const NOTHING: readonly Note[] = [];

/** Hashes of a topic's latest message and of its latest message with the retain flag. */
interface LastMessage {
  last: string;
  retained: string | undefined;
  /** Text of the note on disk. */
  saved: string | undefined;
}

/** Messages from one batch that have not been acknowledged yet. */
interface Group {
  left: number;
  note: Note;
}

export class SessionNotes {
  readonly #beginning: string;
  readonly #notes: ReadonlyMap<string, string>;
  /** Latest messages by topic hash, ordered by arrival. */
  readonly #last = new Map<string, LastMessage>();
  /** Hashes of topics, which are expensive to compute for each message. */
  readonly #keys = new Map<string, string>();
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
    this.#notes = notes;
    for (const [name, text] of notes) {
      if (!name.startsWith(TOPIC)) continue;
      const [last = '', retained = last] = text.split(' ');
      this.#last.set(name.slice(TOPIC.length), { last, retained, saved: text });
    }
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

  /** `session`: identifies the client and broker to which the filters belong. */
  session(session: string): SavedSession {
    const filters = this.#notes.get(FILTERS);
    const kept =
      filters === undefined ? undefined : (JSON.parse(filters) as { of: string; held: [string, 0 | 1 | 2][] });
    return { filters: kept?.of === session ? new Map(kept.held) : undefined, unconfirmed: this.#restored };
  }

  filters(session: string, held: Filters): Note {
    return this.#note(FILTERS, JSON.stringify({ of: session, held: [...held] }));
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

  /** Returns whether a retained message equals the latest message of its topic, either retained or not. */
  isKnown(topic: string, hash: string): boolean {
    const known = this.#last.get(this.#keyOf(topic));
    return known?.last === hash || known?.retained === hash;
  }

  /**
   * Records the latest message of a topic. Returns notes to store only for retained messages with stored values; the
   * other notes are stored at shutdown.
   */
  recordLast(topic: string, hash: string, isRetained: boolean, isStored: boolean): readonly Note[] {
    const key = this.#keyOf(topic);
    const entry = this.#last.get(key) ?? { last: hash, retained: undefined, saved: undefined };
    entry.last = hash;
    if (isRetained) entry.retained = hash;
    this.#last.delete(key);
    this.#last.set(key, entry);
    if (this.#last.size > MAX_TOPICS) this.#evict();
    return isRetained && isStored ? this.#save(key, entry) : NOTHING;
  }

  #keyOf(topic: string): string {
    const known = this.#keys.get(topic);
    if (known !== undefined) return known;
    const key = digestOf(topic);
    if (this.#keys.size >= MAX_KEYS) this.#keys.clear();
    this.#keys.set(topic, key);
    return key;
  }

  #evict(): void {
    const [key, { saved }] = this.#last.entries().next().value!;
    this.#last.delete(key);
    if (saved !== undefined) this.#over.push(`${this.#beginning}${TOPIC}${key}`);
  }

  #save(key: string, entry: LastMessage): readonly Note[] {
    const { last, retained = last } = entry;
    const text = retained === last ? last : `${last} ${retained}`;
    if (entry.saved === text) return NOTHING;
    entry.saved = text;
    return [this.#note(`${TOPIC}${key}`, text)];
  }

  /** Returns the notes that are not on disk yet, for shutdown. */
  rest(): Note[] {
    return [...this.#last].flatMap(([key, entry]) => this.#save(key, entry));
  }

  #note(name: string, text: string | undefined): Note {
    return { name: this.#beginning + name, text };
  }
}
