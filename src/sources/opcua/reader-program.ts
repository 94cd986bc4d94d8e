import { existsSync } from 'node:fs';
import { installedFile } from '../../base/installation.ts';

/** Where the package `tagferry-opcua` puts it, and where it stands in a checkout: it is never part of the agent itself. */
const PACKAGED = '../tagferry-opcua/main.js';
const IN_CHECKOUT = 'src/opcua/main.ts';
const ITS_LIBRARY = 'node_modules/node-opcua-client/package.json';

/** node-opcua has much to load, and little to do. */
const FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=192'];

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
    if (existsSync(file)) return [process.execPath, ...FLAGS, file];
  }
  return undefined;
}
