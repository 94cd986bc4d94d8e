/**
 * What the agent knows of its edge nodes, as notes that are written with the values of their messages, so that a restarted agent resolves
 * the aliases of messages that the broker stored meanwhile. `alias/<node>` changes with a birth certificate, `at/<node>` with each message.
 * Only nodes that publish with QoS 1 or 2 have notes. A crash leaves both as they were with the latest values on disk.
 */
import type { Note } from '../../buffer/client/notes.ts';
import type { EdgeNode } from './edge-node.ts';

const ALIASES = 'alias/';
const POSITION = 'at/';

interface Written {
  aliases: string | undefined;
  /** Whether no birth certificate has arrived since. */
  isCurrent: boolean;
  /** Note of the batch that is being filled: one message after the other replaces its text. */
  turn: Note | undefined;
}

export class NodeNotes {
  readonly #beginning: string;
  readonly #notes: ReadonlyMap<string, string>;
  readonly #written = new Map<string, Written>();

  /** `notes`: those of an earlier process, by their names without `source/<name>/`. */
  constructor(source: string, notes: ReadonlyMap<string, string>) {
    this.#beginning = `source/${source}/`;
    this.#notes = notes;
  }

  /** Names of the nodes with notes, as `group/node`. */
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

  /** A birth certificate arrived: the aliases may have changed. */
  born(name: string): void {
    const written = this.#written.get(name);
    if (written) written.isCurrent = false;
  }

  /** Notes to write with the values of a message. */
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
