import { existsSync } from 'node:fs';
import { installedFile } from '../../base/installation.ts';
import { memoryLimitBytes } from '../../base/memory-limit.ts';

/** Where the package `tagferry-opcua` puts it, and where it stands in a checkout: it is never part of the agent itself. */
const PACKAGED = '../tagferry-opcua/main.js';
const IN_CHECKOUT = 'src/opcua/main.ts';
const ITS_LIBRARY = 'node_modules/node-opcua-client/package.json';

const MIB = 1024 * 1024;
/** Heap of the reader, in MiB: its library, and two messages of the largest size. */
const MIN_HEAP_MIB = 96;
const MAX_HEAP_MIB = 192;
/** Part of the unit's memory that one reader may use for its heap. */
const HEAP_SHARE = 0.4;

/** node-opcua has much to load, and little to do. Without a bound of its own the heap would grow until the unit is killed. */
function flags(): string[] {
  const share = Math.floor((memoryLimitBytes() * HEAP_SHARE) / MIB);
  return ['--max-semi-space-size=1', `--max-old-space-size=${Math.min(Math.max(share, MIN_HEAP_MIB), MAX_HEAP_MIB)}`];
}

export const READER_MISSING = {
  problem: 'the program that reads OPC UA is not installed',
  hint: 'Install its package: apt install tagferry-opcua',
};

/** The program that reads OPC UA, and how it is started; `undefined` where it is not installed. */
export function readerProgram(): [string, ...string[]] | undefined {
  for (const file of [
    installedFile(PACKAGED),
    ...(existsSync(installedFile(ITS_LIBRARY)) ? [installedFile(IN_CHECKOUT)] : []),
  ]) {
    if (existsSync(file)) return [process.execPath, ...flags(), file];
  }
  return undefined;
}
