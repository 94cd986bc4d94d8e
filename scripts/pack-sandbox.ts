import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';

/**
 * `pack-sandbox.ts [FOLDER]`: tagferry-sandbox-<version>.tgz, the sandbox as a package of its own, into the folder named or this one.
 * One program and one module to import, with what they need inside: it installs without other packages, and nothing in it is native.
 */
const root = join(import.meta.dirname, '..');
const out = resolve(process.argv[2] ?? '.');
const { version, license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Record<string, string>;
const stage = mkdtempSync(join(tmpdir(), 'tagferry-sandbox-'));
try {
  await build({
    cwd: root,
    input: { main: 'src/sandbox/main.ts', index: 'src/sandbox/index.ts' },
    platform: 'node',
    // Flat: `src/base/installation.ts` counts on it.
    output: { dir: join(stage, 'dist'), format: 'esm', chunkFileNames: '[name].js', comments: true },
  });
  execFileSync(process.execPath, [join(root, 'scripts/build-page.ts'), join(stage, 'dist/page'), 'sandbox']);
  chmodSync(join(stage, 'dist/main.js'), 0o755);
  copyFileSync(join(root, 'docs/sandbox.md'), join(stage, 'README.md'));
  const manifest = {
    name: 'tagferry-sandbox',
    version,
    description: 'The asset data service on your own machine, for whoever builds a client of it.',
    license,
    type: 'module',
    bin: { 'tagferry-sandbox': 'dist/main.js' },
    exports: './dist/index.js',
    files: ['dist'],
    engines: { node: '>=20' },
  };
  writeFileSync(join(stage, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  mkdirSync(out, { recursive: true });
  const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', out], { cwd: stage, encoding: 'utf8' });
  process.stdout.write(`${join(out, packed.trim())}\n`);
} finally {
  rmSync(stage, { recursive: true, force: true });
}
