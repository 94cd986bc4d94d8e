/** The file that the store thread runs: its parts handed to each other. */
import { parentPort } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import { StoreHost } from '../store/store-host.ts';
import { eventStore } from './event-store.ts';
import { giveBackMemory } from './memory.ts';

if (parentPort) {
  new StoreHost(parentPort, eventStore).serve();
  // It opens the stores meanwhile, or has opened them: what that took is garbage by then.
  giveBackMemory(systemClock);
}
