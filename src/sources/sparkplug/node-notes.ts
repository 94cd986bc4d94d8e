/**
 * Stores the state of edge nodes in notes, which are written with the values of their messages. After a restart, the
 * agent can therefore resolve aliases in messages that the broker stored in the meantime. `alias/<node>` changes with
 * each birth certificate, `at/<node>` with each message. Only nodes that publish with QoS 1 or 2 have notes. After a
 * crash, both notes match the latest values on disk.
 */
import type { Note } from '../../buffer/client/notes.ts';
import type { EdgeNode } from './edge-node.ts';

const ALIASES = 'alias/';
const POSITION = 'at/';

interface Written {
  aliases: string | undefined;
  /** Whether the alias note is current, that is, no birth certificate has arrived since it was written. */
  isCurrent: boolean;
  /** Note in the current batch. Each message replaces the note text. */
  turn: Note | undefined;
}

export class NodeNotes {
  readonly #beginning: string;
  readonly #notes: ReadonlyMap<string, string>;
  readonly #written = new Map<string, Written>();

  /** `notes`: notes stored by a previous process, by name without `source/<name>/`. */
  constructor(source: string, notes: ReadonlyMap<string, string>) {
    this.#beginning = `source/${source}/`;
    this.#notes = notes;
  }

  /** Names of the nodes that have notes, as `group/node`. */
  get nodes(): string[] {
    return [...this.#notes.keys()]
      .filter((name) => name.startsWith(POSITION))
      .map((name) => name.slice(POSITION.length));
  }

  restore(name: string, node: EdgeNode): void {
    const [position, aliases] = [this.#notes.get(POSITION + name), this.#notes.get(ALIASES + name)];
    if (position === undefined || aliases === undefined) return;
    node.restore(position, aliases);
    this.#written.set(name, { aliases, isCurrent: true, turn: undefined });
  }

  /** Records a birth certificate, which may change the aliases. */
  born(name: string): void {
    const written = this.#written.get(name);
    if (written) written.isCurrent = false;
  }

  /** Returns the notes to write with the values of a message. */
  after(name: string, node: EdgeNode): Note[] {
    const written: Written = this.#written.get(name) ?? { aliases: undefined, isCurrent: false, turn: undefined };
    this.#written.set(name, written);
    const notes: Note[] = [];
    if (!written.isCurrent) {
      const { aliases } = node;
      if (aliases !== written.aliases) notes.push({ name: `${this.#beginning}${ALIASES}${name}`, text: aliases });
      Object.assign(written, { aliases, isCurrent: true });
    }
    if (written.turn) written.turn.text = node.position;
    else {
      const note: Note = { name: `${this.#beginning}${POSITION}${name}`, text: node.position };
      notes.push(note);
      written.turn = note;
      queueMicrotask(() => {
        written.turn = undefined;
      });
    }
    return notes;
  }
}
