import { defineConfig } from 'vitest/config';

/** The tests of a room as `scripts/mutate` runs them, in a tree that holds the changes. */
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    root: '.',
    runner: './scripts/mutate.d/trying-runner.ts',
    // Of a change that hangs a test the runner knows by itself, from how long the test took without it.
    testTimeout: 600_000,
    hookTimeout: 20_000,
    expect: { poll: { timeout: 1_500, interval: 20 } },
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
  },
});
