import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Daemons, kill -9 and real disks: generous bounds, because no test asserts a time.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    // Two at once at most: several suites start daemons, and the machines that run this are small.
    maxWorkers: 2,
  },
});
