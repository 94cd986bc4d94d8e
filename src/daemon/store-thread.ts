/** The file that the store thread runs: its parts handed to each other. */
import { parentPort } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import { StoreHost } from '../store/store-host.ts';
import { eventStore } from './event-store.ts';
import { collectGarbage, giveBackMemory } from './memory.ts';

if (parentPort) {
  // Where not all series fit, what reading them has left would stand beside what posting them takes.
  const opened = ({ notLoaded }: StoreFacts) => {
    if (notLoaded > 0) collectGarbage();
  };
  new StoreHost(parentPort, eventStore, opened).serve();
  // It opens the stores meanwhile, or has opened them: what that took is garbage by then.
  giveBackMemory(systemClock);
}
