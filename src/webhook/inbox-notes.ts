import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';

/** Small things that have to outlive a crash, by name: the age of the inbox, the watermark. One that is damaged is none. */
export class InboxNotes {
  readonly #get;
  readonly #set;

  constructor(database: Database) {
    this.#get = database.prepare<[string], { value: string; sum: number }>(
      'SELECT value, sum FROM inbox_note WHERE name = ?',
    );
    this.#set = database.prepare<[string, string, number]>('INSERT OR REPLACE INTO inbox_note VALUES (?, ?, ?)');
  }

  get(name: string): string | undefined {
    const row = this.#get.get(name);
    return row?.sum === sumOf(name, row?.value ?? '') ? row.value : undefined;
  }

  set(name: string, value: string): void {
    this.#set.run(name, value, sumOf(name, value));
  }
}

function sumOf(name: string, value: string): number {
  return crc32(`${name}\n${value}`);
}
