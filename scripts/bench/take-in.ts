/** Takes readings into a store at 1,000 a commit and ends: what a layer below counts is the store's alone. */
import { benchStore } from './bench-store.ts';
import { Plant } from './plant.ts';

const [path, total] = [process.argv[2]!, Number(process.argv[3])];
const { commit } = benchStore(path);
const plant = new Plant();
for (let done = 0; done < total; done += 1000) commit(plant.next(1000));
