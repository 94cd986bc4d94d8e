import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { A_DAY_MS, CHECKOUT, madeOnce, sourceKey } from './host/made-once.ts';

const run = promisify(execFile);

/**
 * Builds the agent and its OPC UA reader once for all test files, and again after a source change. Built programs start
 * in half the time, and are what gateways run.
 */
const BUILT = await madeOnce(
  'built',
  await sourceKey(),
  async (making) => {
    const agent = join(making, 'tagferry');
    mkdirSync(agent);
    // Files that the agent reads, and its dependencies.
    for (const name of ['package.json', 'config', 'node_modules']) symlinkSync(join(CHECKOUT, name), join(agent, name));
    await run(process.execPath, [join(CHECKOUT, 'scripts/build.ts'), join(agent, 'dist')]);
    await run(process.execPath, [join(CHECKOUT, 'scripts/build-opcua.ts'), join(making, 'tagferry-opcua')]);
  },
  A_DAY_MS,
);

/** The `tagferry` command. */
export const MAIN = join(BUILT, 'tagferry/dist/main.js');
