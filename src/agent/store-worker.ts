import { Worker } from 'node:worker_threads';
import type { StoreApi } from '../store/store-api.ts';
import { StoreThread } from '../store/store-client.ts';
import type { EventServices } from './event-store.ts';

/** Interface of the agent's store thread. */
export type AgentStoreApi = StoreApi<EventServices>;

/** Creates the agent's store thread without launching it. */
export function agentStoreThread(): StoreThread {
  return new StoreThread(startWorker);
}

function startWorker(): Worker {
  // The agent runs from source or from the build, and the thread uses the same file extension.
  const file = new URL(import.meta.url.endsWith('.ts') ? './store-thread.ts' : './store-thread.js', import.meta.url);
  return new Worker(file, {
    // The thread's garbage is short-lived and small, so a large young generation would waste memory.
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
    execArgv: [],
  });
}
