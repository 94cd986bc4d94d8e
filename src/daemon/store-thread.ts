/** The file that the store thread runs: its parts handed to each other. */
import { parentPort } from 'node:worker_threads';
import { StoreHost } from '../store/store-host.ts';
import { eventStore } from './event-store.ts';

if (parentPort) new StoreHost(parentPort, eventStore).serve();
