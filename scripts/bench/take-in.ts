/** Commits readings into a store, 1,000 per commit, so that a preloaded library counts only the syncs of the store. */
import { benchStore } from './bench-store.ts';
import { Plant } from './plant.ts';

const [path, total] = [process.argv[2]!, Number(process.argv[3])];
const { commit } = benchStore(path);
const plant = new Plant();
for (let done = 0; done < total; done += 1000) commit(plant.next(1000));
