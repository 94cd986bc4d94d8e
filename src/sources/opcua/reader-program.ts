/** Locates the program that reads OPC UA servers, and prepares the settings that the agent sends to it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { installedFile } from '../../base/installation.ts';
import { memoryLimitBytes } from '../../base/memory-limit.ts';
import type { Source } from '../../config/tags.ts';
import type { AgentLine, Endpoint, Item, ReaderLine } from '../../opcua/protocol.ts';
import type { Quality } from '../intake/gate.ts';
import type { Point } from '../points.ts';

/** Server settings. By default, this gateway's certificate is stored in the state folder. */
export interface OpcuaSpec extends Omit<Endpoint, 'identity'> {
  identity?: { certFile: string; keyFile: string };
  /** Longest gap that is filled from the history of the server; 0 disables it. */
  historyMs: number;
}

export interface OpcuaValue extends Pick<Item, 'node' | 'index' | 'member' | 'queueSize' | 'trigger'> {}

/** By severity of a status code. */
export const QUALITIES: readonly Quality[] = ['good', 'uncertain', 'bad'];

/** Paths of the reader in the package `tagferry-opcua` and in a checkout. The reader is not included in the agent. */
const PACKAGED = '../tagferry-opcua/main.js';
const IN_CHECKOUT = 'src/opcua/main.ts';
const LIBRARY = 'node_modules/node-opcua-client/package.json';

const MIB = 1024 * 1024;
/** Minimum heap size of the reader, in MiB: enough for its library and two messages of the maximum size. */
const MIN_HEAP_MIB = 96;
const MAX_HEAP_MIB = 192;
/** Fraction of the unit's memory limit that the heap of one reader may use. */
const HEAP_SHARE = 0.4;

export const READER_MISSING = {
  problem: 'the package tagferry-opcua is not installed',
  hint: 'Install its package: apt install tagferry-opcua',
};

/** Returns the command of the OPC UA reader; `undefined` if it is not installed. */
export function readerProgram(): [string, ...string[]] | undefined {
  const hasLibrary = existsSync(installedFile(LIBRARY));
  const files = hasLibrary ? [PACKAGED, IN_CHECKOUT] : [PACKAGED];
  const file = files.map(installedFile).find((path) => existsSync(path));
  if (file === undefined) return undefined;
  const shareMib = Math.floor((memoryLimitBytes() * HEAP_SHARE) / MIB);
  // Limit the heap, because it could otherwise grow until the unit is killed: node-opcua loads a large amount of code.
  const heapMib = Math.min(Math.max(shareMib, MIN_HEAP_MIB), MAX_HEAP_MIB);
  return [process.execPath, '--max-semi-space-size=1', `--max-old-space-size=${heapMib}`, file];
}

/** Maximum line length, sufficient for ten thousand subscription items. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

/** Calls `handle` for each line from the reader, one line at a time. Rejects if a line exceeds `MAX_LINE_BYTES`. */
export async function eachReaderLine(
  output: Readable,
  handle: (line: ReaderLine) => Promise<void> | void,
): Promise<void> {
  output.setEncoding('utf8');
  let rest = '';
  for await (const chunk of output as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    if (rest.length > MAX_LINE_BYTES) throw new Error('a line from the OPC UA process exceeds the size limit');
    for (const line of lines) await handle(JSON.parse(line) as ReaderLine);
  }
}

export function sendToReader(input: Writable | undefined, line: AgentLine): void {
  if (input?.writable) input.write(`${JSON.stringify(line)}\n`);
}

/**
 * Tolerance for rounding errors in a quotient, so that the server's dead band never suppresses more values than the
 * agent's.
 */
const ROUNDING = 1 - 1e-9;

/** Returns the monitored item for a value. */
export function itemOf({ spec, everyMs, shaping }: Point<OpcuaValue>): Item {
  const { deadband, scale, maxSilenceMs } = shaping;
  // The server applies only absolute dead bands, because its relative dead bands have a different meaning. With a
  // maximum silence, it must send all values, because suppressed values cannot end a silence.
  const isForServer = deadband !== undefined && 'units' in deadband && deadband.units > 0 && maxSilenceMs === undefined;
  return {
    ...spec,
    samplingMs: everyMs,
    ...(isForServer ? { deadband: (deadband.units / Math.abs(scale)) * ROUNDING } : {}),
  };
}

/**
 * Returns the endpoint. If tags.yaml specifies no certificate, the endpoint contains the default certificate folder.
 */
export function endpointOf({ spec }: Source<OpcuaSpec>, stateDir: string): Endpoint {
  const { identity = { folder: join(stateDir, 'opcua') }, historyMs: _, ...endpoint } = spec;
  return { ...endpoint, identity };
}
