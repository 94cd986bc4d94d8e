/** Files that the configuration names and that lie elsewhere: a backup of the folder does not have them, and who restores has to know. */
import { readFileSync, statSync } from 'node:fs';
import { isAbsolute, relative, resolve } from 'node:path';
import { withDropIns } from '../../config/drop-in-files.ts';
import { Problems } from '../../config/problem.ts';

/** An absolute path: what begins with a slash behind a quote, a bracket, a separator or a space. */
const PATHS = /(?<=^|[\s"'[{,=:])\/[^\s"',\]}#;:]+/gm;
/** Every machine has its own of these. */
const OF_THE_SYSTEM = /^\/(bin|sbin|lib|lib64|usr\/(bin|sbin|lib)|dev|proc|sys)\//;
const MAX_NAMED = 100;

export function namedElsewhere(directory: string): { file: string; why: string }[] {
  const found = new Set<string>();
  const files = [
    ...withDropIns(directory, 'agent.env', 'agent.env.d', new Problems()),
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
  const inside = relative(resolve(directory), path);
  if (OF_THE_SYSTEM.test(path) || (!inside.startsWith('..') && !isAbsolute(inside))) return false;
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
