import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { build } from 'rolldown';

/**
 * `build-opcua.ts FOLDER [VERSION]` bundles the OPC UA program for the package tagferry-opcua. `licences.txt` contains
 * the licences of the bundled packages, and `packages.txt` their paths. The library consists of a hundred packages, of
 * which the reader uses only a part, so a bundle is smaller and loads faster.
 */
const root = join(import.meta.dirname, '..');
const folder = resolve(process.argv[2]!);
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
rmSync(folder, { recursive: true, force: true });
const { output } = await build({
  cwd: root,
  input: { main: 'src/opcua/main.ts' },
  // Locks files on Windows and is never called here.
  external: ['proper-lockfile'],
  // Keeps module paths below the root, also for linked packages.
  resolve: { symlinks: false },
  platform: 'node',
  output: {
    dir: folder,
    format: 'esm',
    chunkFileNames: '[name].js',
    comments: { legal: true, annotation: false, jsdoc: false },
  },
});
const manifest = { name: 'tagferry-opcua', version: process.argv[3] ?? version, type: 'module' };
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);

const modules = output.flatMap((one) => (one.type === 'chunk' ? one.moduleIds : []));
const packages = new Set(modules.flatMap((id) => packageOf(relative(root, id)) ?? []));
writeFileSync(join(folder, 'licences.txt'), [...packages].toSorted().map(licenceOf).join('\n'));
writeFileSync(
  join(folder, 'packages.txt'),
  [...packages]
    .toSorted()
    .map((path) => `${path}\n`)
    .join(''),
);

/** Returns the package path of a file, such as `node_modules/a/node_modules/@b/c`. */
function packageOf(file: string): string | undefined {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0];
}

/** Returns the licence text, or the licence section of the README. */
function licenceOf(path: string): string {
  const place = join(root, path);
  const facts = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')) as Record<string, string>;
  const files = readdirSync(place);
  const read = (name: string) => readFileSync(join(place, name), 'utf8').trim();
  const texts = files.filter((name) => /^(licen[cs]e|copying)/i.test(name)).map(read);
  const readme = files
    .filter((name) => /^readme/i.test(name))
    .map((name) => /^#+ *licen[cs]e.*/ims.exec(read(name))?.[0]);
  const words = texts.length > 0 ? texts : readme.filter((text) => text !== undefined);
  return [`${facts.name} ${facts.version} (${facts.license ?? 'see below'})`, ...words, ''].join('\n');
}
