import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { sharesProcess } from './shared-processes.ts';

/**
 * What takes longest, by half a minute and more on the slower of our machines, in the order in which it begins: a run ends when its last
 * file does, and one that is long must not begin when the others are through. Those that have the Debian tree made, or wait for
 * it, stand apart. A name is a file, or a folder with all of its files.
 */
export const LONGEST = [
  'test/system/gateway.test.ts',
  'test/uplink/uplink.test.ts',
  'test/faults/disk-errors.test.ts',
  'test/process/small-memory.test.ts',
  'test/faults/read-only.test.ts',
  'test/system/package.test.ts',
  'test/page',
  'test/system',
  'test/prove',
  'test/commands/people-verbs.test.ts',
  'test/commands/operator-verbs.test.ts',
  'test/buffer/verbs.test.ts',
  'test/process',
  'test/model',
  'test/faults',
  'test/commands',
  'test/broker',
  'test/sources/mqtt-scan.test.ts',
  'test/uplink',
  'test/sandbox',
];

/** Begins with what is long by that list; the rest as vitest does, which knows sizes, and lengths where it has run before. */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const place = new Map(sorted.map((file) => [file, placeOf(relative(import.meta.dirname, file.moduleId))]));
    // Of the rest a room stays together: its files share a process.
    return sorted.sort(
      (a, b) =>
        place.get(a)! - place.get(b)! ||
        Number(a.project.name > b.project.name) - Number(a.project.name < b.project.name),
    );
  }
}

/** Of a file below `test/` in the list; behind all of it where it is not, what shares a process at the end, for it is short. */
export function placeOf(file: string): number {
  const path = `test/${file}`;
  const named = LONGEST.indexOf(path);
  if (named >= 0) return named;
  const inFolder = LONGEST.findIndex((name) => path.startsWith(`${name}/`));
  return inFolder >= 0 ? inFolder : LONGEST.length + (sharesProcess(path) ? 1 : 0);
}
