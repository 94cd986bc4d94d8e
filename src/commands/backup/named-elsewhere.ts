/** Files that the configuration names and that lie elsewhere: a backup of the folder does not have them, and who restores has to know. */
import { statSync } from 'node:fs';
import { hostname } from 'node:os';
import { isAbsolute, relative, resolve } from 'node:path';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { withDropIns } from '../../config/drop-in-files.ts';
import { readEnvFiles } from '../../config/env-files.ts';
import { Problems } from '../../config/problem.ts';

/** An absolute path: what begins with a slash behind a quote, a bracket, a separator or a space. */
const PATHS = /(?<=^|[\s"'[{,=:])\/[^\s"',\]}#;:]+/gm;
/** Every machine has its own of these. */
const OF_THE_SYSTEM = /^\/(bin|sbin|lib|lib64|usr\/(bin|sbin|lib)|dev|proc|sys)\//;
const MAX_NAMED = 100;

export function namedElsewhere(directory: string): { file: string; why: string }[] {
  const values = { hostname: hostname(), environment: process.env };
  const lines = [...readEnvFiles(directory, values, new Problems()).lines.values()];
  const found = new Set(lines.flatMap(({ value }) => (isElsewhere(directory, value) ? [value] : [])));
  const files = [
    ...withDropIns(directory, 'tags.yaml', 'tags.d', new Problems()),
    ...withDropIns(directory, 'reactions.yaml', 'reactions.d', new Problems()),
  ];
  for (const { path } of files) {
    for (const line of textOf(path).split('\n')) {
      if (/^\s*[#;]/.test(line)) continue;
      for (const [named] of line.matchAll(PATHS)) if (isElsewhere(directory, named)) found.add(named);
    }
  }
  return [...found]
    .slice(0, MAX_NAMED)
    .map((file) => ({ file, why: 'the configuration names it, and it lies elsewhere' }));
}

function isElsewhere(directory: string, path: string): boolean {
  if (!isAbsolute(path)) return false;
  const inside = relative(resolve(directory), path);
  if (OF_THE_SYSTEM.test(path) || (!inside.startsWith('..') && !isAbsolute(inside))) return false;
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

const MAX_BYTES = 64_000_000;

function textOf(path: string): string {
  try {
    return readRegularFileSync(path, MAX_BYTES).bytes.toString();
  } catch {
    return '';
  }
}
