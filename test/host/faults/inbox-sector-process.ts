/**
 * Process that uses an inbox through the store thread host on a faulty disk, and prints the results as JSON. argv: the
 * state folder, `fill` or `use`, the number of events, and disk orders that apply after the inbox is open.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventStore } from '../../../src/agent/event-store.ts';
import type { OpenedStore } from '../../../src/store/store-api.ts';
import { StoreHost } from '../../../src/store/store-host.ts';
import { errorOf, type SetAside, type StoreAnswer, type StoreCall } from '../../../src/store/store-messages.ts';
import type { InboxEvent } from '../../../src/webhook/inbox-event.ts';
import { type ArrivedEvent, readEvent } from '../../../src/webhook/received-event.ts';

export interface InboxSaid {
  /** Payloads of all listed events. */
  ids: number[];
  /** Result of a new event, of its repetition, and of every previous event. */
  fresh: string[];
  again: string[];
  before: string[];
  setAside: SetAside[];
  failed: string[];
}

const FIXTURE = readFileSync(join(import.meta.dirname, '../../fixtures/events/threshold_reached.json'), 'utf8');
const [folder, kind, count] = [process.argv[2]!, process.argv[3]!, Number(process.argv[4])];
const said: InboxSaid = { ids: [], fresh: [], again: [], before: [], setAside: [], failed: [] };

let hear: (call: StoreCall) => void = () => {};
let answer: StoreAnswer | undefined;
new StoreHost(
  {
    on: (_event, listen) => {
      hear = listen;
    },
    postMessage: (message) => {
      if ('id' in message) answer = message;
      else said.setAside.push(message.setAside);
    },
  },
  eventStore,
).serve();

function ask<Result>(service: string, method: string, ...args: unknown[]): Result {
  hear({ id: 1, service, method, args });
  if (!answer || 'failure' in answer) throw answer ? errorOf(answer.failure) : new Error('no answer');
  return answer.result as Result;
}

function attempt<Result>(step: () => Result): Result | undefined {
  try {
    return step();
  } catch (error) {
    said.failed.push(String(error));
    return undefined;
  }
}

/** Some events overflow to a separate page. */
function threshold(value: number): ArrivedEvent {
  const payload = JSON.parse(FIXTURE);
  payload.content.data.value = value;
  payload.content.note = 'x'.repeat((value % 3) * 700);
  return readEvent(new TextEncoder().encode(JSON.stringify(payload)), 1);
}

const insert = (events: ArrivedEvent[]) => attempt(() => ask<string[]>('inbox', 'insertMany', events)) ?? ['failed'];

const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' };
const values = { bounds, flushAfterMs: 50, flushValues: 1_000 };
const opened = ask<OpenedStore>('thread', 'open', { stateDir: folder, holder: 'daemon', values });
said.setAside.push(...opened.setAside);
if (process.argv[5]) writeFileSync(process.env.DISK_LAYER_ORDERS!, process.argv[5]);
if (kind === 'fill') {
  for (let i = 0; i < count; i += 50) insert(Array.from({ length: 50 }, (_, at) => threshold(i + at)));
} else {
  for (let beforeId: number | undefined, more = true; more; ) {
    const query = { limit: 1_000, ...(beforeId === undefined ? {} : { beforeId }) };
    const page = attempt(() => ask<InboxEvent[]>('inbox', 'list', query)) ?? [];
    // A list contains no payloads: they are read one by one, as `events show` does.
    for (const { id } of page) if (attempt(() => ask('inbox', 'show', id)) !== undefined) said.ids.push(id);
    beforeId = page.at(-1)?.id;
    more = page.length > 0;
  }
  said.fresh = insert([threshold(1_000_000)]);
  said.again = insert([threshold(1_000_000)]);
  for (let i = 0; i < count; i += 50)
    said.before.push(...insert(Array.from({ length: 50 }, (_, at) => threshold(i + at))));
}
ask('thread', 'close');
process.stdout.write(JSON.stringify(said));
