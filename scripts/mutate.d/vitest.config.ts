import { defineConfig } from 'vitest/config';

/** The tests of one room, as `scripts/mutate` names them. */
export default defineConfig({
  test: {
    include: (process.env.TAGFERRY_MUTATE_TESTS ?? '').split('|'),
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 1,
  },
});
