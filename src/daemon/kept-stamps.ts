/** What stamps of arrival were given last: kept with the values that bear them, so that a restart gives none again. */
import type { Note } from '../buffer/client/notes.ts';
import type { ValueStore } from '../buffer/value-store.ts';
import type { KeptStamps, Stamps } from '../sources/stamps.ts';
import type { Remote } from '../store/store-api.ts';

const NAME = 'stamps';

export async function readStamps(store: Pick<Remote<ValueStore>, 'notes'>): Promise<Partial<KeptStamps>> {
  const [note] = await store.notes(NAME);
  if (note?.text === undefined) return {};
  const kept = JSON.parse(note.text) as KeptStamps | KeptStamps['ahead'];
  // Written before the clock's own reading was kept: only what lay ahead of it.
  return 'latestMs' in kept ? kept : { ahead: kept };
}

/** What a commit writes down: nothing where every value came with its time. */
export function stampNotes(stamps: Stamps): (wallMs: number) => Note[] {
  let written = '';
  return (wallMs) => {
    const text = JSON.stringify(stamps.kept(wallMs));
    if (text === written) return [];
    written = text;
    return [{ name: NAME, text }];
  };
}
