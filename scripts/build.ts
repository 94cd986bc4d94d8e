import { execFileSync } from 'node:child_process';
import { chmodSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';

/**
 * `build.ts [FOLDER]` builds the program into `dist/` or FOLDER. Types are stripped, and tagferry's modules are bundled
 * into one file for the agent and one per verb, so that startup reads thirty files instead of two hundred. Names and
 * line breaks are kept for readability. Comments are removed, because the runtime keeps the source text in memory.
 * Dependencies stay in node_modules.
 */
const root = join(import.meta.dirname, '..');
const folder = resolve(process.argv[2] ?? join(root, 'dist'));
rmSync(folder, { recursive: true, force: true });
await build({
  cwd: root,
  input: {
    main: 'src/main.ts',
    'store-thread': 'src/agent/store-thread.ts',
    'configuration-thread': 'src/agent/configuration-thread.ts',
    'folder-program': 'src/sources/csv/folder-program.ts',
  },
  external: /^[^./]/,
  platform: 'node',
  // Flat, because `src/base/installation.ts` and the threads' URLs require it.
  output: {
    dir: folder,
    format: 'esm',
    chunkFileNames: '[name].js',
    comments: { legal: true, annotation: true, jsdoc: false },
  },
});
execFileSync(process.execPath, [join(root, 'scripts/build-page.ts'), join(folder, 'page')], { stdio: 'inherit' });
chmodSync(join(folder, 'main.js'), 0o755);
