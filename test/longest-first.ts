import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { sharesProcess } from './shared-processes.ts';

/**
 * Test files that run for more than half a minute on a slow machine, in start order. A run ends with its last file, so
 * long files must start early. Files that build the Debian tree, or wait for it, are not adjacent. A name is a file, or
 * a folder with all its files.
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

/** Runs listed files first, and the others in vitest's order, which is based on sizes and previous durations. */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const place = new Map(sorted.map((file) => [file, placeOf(relative(import.meta.dirname, file.moduleId))]));
    // The other files of a folder stay together, because they share a process.
    return sorted.sort(
      (a, b) =>
        place.get(a)! - place.get(b)! ||
        Number(a.project.name > b.project.name) - Number(a.project.name < b.project.name),
    );
  }
}

/** Position of a file below `test/` in the list. Files that share a process come last, because they are short. */
export function placeOf(file: string): number {
  const path = `test/${file}`;
  const named = LONGEST.indexOf(path);
  if (named >= 0) return named;
  const inFolder = LONGEST.findIndex((name) => path.startsWith(`${name}/`));
  return inFolder >= 0 ? inFolder : LONGEST.length + (sharesProcess(path) ? 1 : 0);
}
