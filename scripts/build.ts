import { execFileSync } from 'node:child_process';
import { chmodSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';

/**
 * `build.ts [FOLDER]`: what runs on a gateway, into `dist/` or the folder named. Types stripped, and our modules put into one file for what
 * the daemon loads and one for each verb: a start finds, reads and links thirty files instead of two hundred. Names and
 * line breaks stay, so that it can be read there; comments do not, for the runtime keeps the text of what it has loaded in memory. Dependencies stay what they are in node_modules.
 */
const root = join(import.meta.dirname, '..');
const folder = resolve(process.argv[2] ?? join(root, 'dist'));
rmSync(folder, { recursive: true, force: true });
await build({
  cwd: root,
  input: {
    main: 'src/main.ts',
    'store-thread': 'src/daemon/store-thread.ts',
    'configuration-thread': 'src/daemon/configuration-thread.ts',
    'folder-program': 'src/sources/csv/folder-program.ts',
    'tagferry-sandbox': 'src/sandbox/main.ts',
  },
  external: /^[^./]/,
  platform: 'node',
  // Flat: `src/base/installation.ts` and the threads' URLs count on it.
  output: {
    dir: folder,
    format: 'esm',
    chunkFileNames: '[name].js',
    comments: { legal: true, annotation: true, jsdoc: false },
  },
});
execFileSync(process.execPath, [join(root, 'scripts/build-page.ts'), join(folder, 'page')], { stdio: 'inherit' });
for (const program of ['main.js', 'tagferry-sandbox.js']) chmodSync(join(folder, program), 0o755);
