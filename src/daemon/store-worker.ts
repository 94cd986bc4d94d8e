import { Worker } from 'node:worker_threads';
import type { StoreApi } from '../store/store-api.ts';
import { StoreThread } from '../store/store-client.ts';
import type { EventServices } from './event-store.ts';

/** All that the store thread of the agent answers. */
export type AgentStoreApi = StoreApi<EventServices>;

/** A store thread that serves the agent's stores; it is not launched yet. */
export function agentStoreThread(): StoreThread {
  return new StoreThread(startWorker);
}

function startWorker(): Worker {
  // The source runs as it is, and built: the thread's file has the ending of this one.
  const file = new URL(import.meta.url.endsWith('.ts') ? './store-thread.ts' : './store-thread.js', import.meta.url);
  return new Worker(file, {
    // The thread's garbage is short-lived and small; a large nursery would only hold memory.
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
    execArgv: [],
  });
}
