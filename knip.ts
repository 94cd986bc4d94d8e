import type { KnipConfig } from 'knip';

/**
 * Files, exports, types and dependencies that nothing uses. test/house asks twice: with everything, and with `--production`, which
 * leaves the tests out and so finds what only they use. An export for the tests of a file that uses it itself is none of that.
 */
export default {
  // What is started by its name instead of imported.
  entry: [
    'src/main.ts!',
    'src/opcua/main.ts!',
    'src/agent/{configuration,store}-thread.ts!',
    'src/sources/csv/folder-program.ts!',
    'src/page/main.tsx!',
    'scripts/*.ts',
    'scripts/prove.d/prove.ts',
    'scripts/deb/*.ts',
    'scripts/release.d/{licences,notes,oci,sbom}.ts',
    'scripts/bench/*.ts',
    'scripts/bench/sources/*.ts',
    'test/**/*-process.ts',
  ],
  project: ['src/**/*.{ts,tsx}!', 'scripts/**/*.ts', 'test/**/*.ts'],
  ignoreExportsUsedInFile: process.argv.includes('--production'),
  // It does not look into the projects of vitest.config.ts.
  vitest: { config: 'vitest.config.ts', entry: 'test/**/*.test.ts' },
  // Programs of the machine.
  exclude: ['binaries'],
} satisfies KnipConfig;
