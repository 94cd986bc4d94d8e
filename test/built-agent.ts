import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { A_DAY_MS, CHECKOUT, madeOnce, sourceKey } from './system/made-once.ts';

const run = promisify(execFile);

/**
 * The agent and, beside it, the program that reads OPC UA, as a gateway has them: built once for all files of tests, and again where a source
 * has changed. They start in half the time that their sources take, and are what runs in the plant.
 */
const BUILT = await madeOnce(
  'built',
  await sourceKey(),
  async (making) => {
    const agent = join(making, 'tagferry');
    mkdirSync(agent);
    // What it reads beside itself, and its dependencies.
    for (const name of ['package.json', 'config', 'node_modules']) symlinkSync(join(CHECKOUT, name), join(agent, name));
    await run(process.execPath, [join(CHECKOUT, 'scripts/build.ts'), join(agent, 'dist')]);
    await run(process.execPath, [join(CHECKOUT, 'scripts/build-opcua.ts'), join(making, 'tagferry-opcua')]);
  },
  A_DAY_MS,
);

/** The `tagferry` command. */
export const MAIN = join(BUILT, 'tagferry/dist/main.js');

/** The `tagferry-sandbox` command. */
export const SANDBOX_MAIN = join(BUILT, 'tagferry/dist/tagferry-sandbox.js');
