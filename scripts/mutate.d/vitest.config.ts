import { defineConfig } from 'vitest/config';

/** The tests of one room, as `scripts/mutate` names them. */
export default defineConfig({
  test: {
    include: (process.env.TAGFERRY_MUTATE_TESTS ?? '').split('|'),
    // Of a change that hangs a test Stryker knows by itself, from how long the test took without it.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    pool: 'forks',
    maxWorkers: 1,
  },
});
