import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `e_machine` of the ELF header. */
const MACHINES: Record<number, string> = { 62: 'amd64', 183: 'arm64' };

/** Contents of a package: SQLite, serial lines, the runtime. */
const parts = (of: string) => [`better-sqlite3 ${of}`, `bin/node ${of}`, `@serialport ${of}`].toSorted();
export const PARTS = { amd64: parts('amd64'), arm64: parts('arm64') };

/** Native parts of an unpacked package, each with its architecture. */
export function nativeParts(tree: string): string[] {
  const inside = join(tree, 'usr/lib/tagferry');
  const native = readdirSync(inside, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.node'));
  return [...native, 'bin/node']
    .map((file) => `${file.replace(/^node_modules\/([^/]+)\/.*/, '$1')} ${machineOf(join(inside, file))}`)
    .toSorted();
}

function machineOf(file: string): string {
  const head = readFileSync(file).subarray(0, 20);
  if (head.subarray(0, 4).toString('latin1') !== '\x7fELF') return 'no ELF';
  return MACHINES[head.readUInt16LE(18)] ?? 'another';
}
