/** Last stamps of arrival that lie ahead of the clock: kept with the values that bear them, so that a restart gives none again. */
import type { Note } from '../buffer/client/notes.ts';
import type { ValueStore } from '../buffer/value-store.ts';
import type { Stamps } from '../sources/stamps.ts';
import type { Remote } from '../store/store-api.ts';

const NAME = 'stamps';

export async function readStamps(store: Pick<Remote<ValueStore>, 'notes'>): Promise<[number, number][]> {
  const [note] = await store.notes(NAME);
  return note?.text === undefined ? [] : (JSON.parse(note.text) as [number, number][]);
}

/** What a commit writes down; mostly nothing, because stamps are seldom ahead. */
export function stampNotes(stamps: Stamps): (wallMs: number) => Note[] {
  let isKept = true;
  return (wallMs) => {
    const ahead = stamps.ahead(wallMs);
    if (ahead.length === 0 && !isKept) return [];
    isKept = ahead.length > 0;
    return [{ name: NAME, text: isKept ? JSON.stringify(ahead) : undefined }];
  };
}
