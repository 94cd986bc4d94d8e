import { globSync, readFileSync } from 'node:fs';
import { configDefaults, defineConfig } from 'vitest/config';
import { COMPILED_CODE } from './test/compiled-code.ts';
import LongestFirst from './test/longest-first.ts';
import { PATIENCE_MS } from './test/patience-ms.ts';
import { sharesProcess } from './test/shared-processes.ts';

const include = ['test/**/*.test.ts'];
const shared = globSync(include, { cwd: import.meta.dirname }).filter(sharesProcess);
const roomOf = (file: string) => file.split('/')[1]!;
const rooms = [...new Set(shared.map(roomOf))];
// On two cores: nearly half of its time a file waits, for a disk, a clock, a daemon that starts. Where nobody watches, surer than fast.
const maxWorkers = process.env.CI ? 2 : 4;
/** Modules that require root: control groups, mounts, name spaces, machines with systemd. */
const HOST_MODULES =
  /gateway-process|memory-bounds|small-disk|hung-share|machine-clock|faketime|from '\.\.\/system\/(?!made-once)/;
/** Whether a test file requires a machine of its own and runs only with `scripts/test --host`. */
function needsHost(file: string): boolean {
  return /^test\/(?:system|faults|prove)\//.test(file) || HOST_MODULES.test(readFileSync(file, 'utf8'));
}
/** `suites`, `host` or `all`. A file named on the command line runs in any case. */
const layer = process.env.TEST_LAYER ?? 'suites';
const isNamed = process.argv.some((argument) => argument.startsWith('test/'));
const skipped = isNamed
  ? []
  : [
      ...globSync('test/long/**/*.test.ts', { cwd: import.meta.dirname }),
      ...globSync(include, { cwd: import.meta.dirname }).filter(
        (file) => layer !== 'all' && needsHost(file) !== (layer === 'host'),
      ),
    ];
const exclude = [...configDefaults.exclude, ...skipped];

// What Node compiles is kept, of the tests and of the processes that they start.
process.env.NODE_COMPILE_CACHE ??= COMPILED_CODE.NODE_COMPILE_CACHE;

const each = {
  // Daemons, kill -9 and real disks: generous bounds, because no test asserts a time.
  testTimeout: 120_000,
  hookTimeout: 120_000,
  setupFiles: './test/patience.ts',
  expect: { poll: { timeout: PATIENCE_MS, interval: 20 } },
  // Where nobody watches, what fails is asked once more and counted as retried: daemons in real time on shared machines
  // meet pauses that say nothing about the code. At a desk the first failure counts.
  retry: process.env.CI ? 1 : 0,
  pool: 'forks' as const,
  maxWorkers,
};

/** Node strips the types and loads what a process has loaded before no second time; what puts modules in the place of others needs vitest's loader. */
const byNode = { experimental: { viteModuleRunner: false, nodeLoader: false } };

export default defineConfig({
  test: {
    // What stands here each project has too, added to its own: no `include`.
    projects: [
      { test: { ...each, name: 'alone', include, exclude: [...exclude, ...shared] } },
      // A project a room: its files share a process, which ends with them and gives back what they left in memory.
      ...rooms.map((room) => ({
        test: {
          ...each,
          ...byNode,
          name: room,
          include: shared.filter((file) => roomOf(file) === room),
          exclude,
          isolate: false,
        },
      })),
    ],
    // The page, where a source of it is newer than what was built.
    globalSetup: './test/built-page.ts',
    // Before the summary, which stays the last thing of a run.
    reporters: ['./test/retried-reporter.ts', 'default'],
    sequence: { sequencer: LongestFirst },
    maxWorkers,
  },
});
