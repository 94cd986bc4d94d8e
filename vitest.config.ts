import { globSync } from 'node:fs';
import { basename } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { PATIENCE_MS } from './test/setup.ts';

/** The folder is the layer. CONTRIBUTING.md says what the tests of each layer may use. */
const common = {
  // No test asserts a time: the limits are for a machine under load.
  testTimeout: 120_000,
  hookTimeout: 120_000,
  expect: { poll: { timeout: PATIENCE_MS, interval: 20 } },
  pool: 'forks' as const,
};
/** Node strips the types itself and loads each module once per process, which is faster. It cannot mock modules. */
const byNode = { experimental: { viteModuleRunner: false, nodeLoader: false } };

const unit = { ...common, setupFiles: ['./test/setup.ts', './test/unit/setup.ts'] };
/** Files that mock modules or change the process. All others of a room share a process. */
const isolated = '**/*.isolated.test.ts';
const rooms = globSync('test/unit/*/', { cwd: import.meta.dirname }).map((folder) => basename(folder));

const layer = (name: string) => ({
  test: {
    ...common,
    ...byNode,
    name,
    include: [`test/${name}/**/*.test.ts`],
    setupFiles: ['./test/setup.ts'],
    // End-to-end tests mostly wait for processes.
    maxWorkers: name === 'e2e' ? 3 : 2,
  },
});

export default defineConfig({
  test: {
    projects: [
      ...rooms.map((room) => ({
        test: {
          ...unit,
          ...byNode,
          name: `unit/${room}`,
          include: [`test/unit/${room}/**/*.test.ts`],
          exclude: [...configDefaults.exclude, isolated],
          isolate: false,
        },
      })),
      { test: { ...unit, name: 'unit/isolated', include: [`test/unit/${isolated}`] } },
      ...['house', 'e2e', 'host', 'prove', 'old'].map(layer),
    ],
    maxWorkers: 2,
  },
});
