import { globSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * `copyright.ts ROOT STAGED PREFIX` prints the stanzas of `debian/copyright` for other authors: one per package in the
 * `node_modules` of a staged folder (at PREFIX on the gateway), and one with the licence texts of the packages that are
 * bundled into the pages.
 */
const [root, staged, prefix] = process.argv.slice(2) as [string, string, string];

interface Manifest {
  name: string;
  license?: string;
  author?: string | { name: string };
  dependencies?: object;
  devDependencies?: object;
}

const stanzas: string[] = [];
for (const file of globSync('**/node_modules/{*,@*/*}/package.json', { cwd: staged }).sort()) {
  const folder = file.slice(0, -'/package.json'.length);
  const manifest = readManifest(join(staged, folder));
  // Manifests in inner folders of packages have no name.
  if (manifest.name === undefined || !folder.endsWith(`/${manifest.name}`)) continue;
  const { file: text, holder } = licenceOf(join(staged, folder), manifest);
  const common = /Apache-2\.0/.test(manifest.license ?? '')
    ? 'Apache-2.0 is in /usr/share/common-licenses/Apache-2.0.'
    : '';
  const own = text ? `The full text is in /${prefix}/${folder}/${text}.` : 'The package contains no licence text.';
  const where = [own, common].filter(Boolean).join('\n');
  stanzas.push(stanza(`${prefix}/${folder}/*`, holder, manifest, where));
}
const page = bundled().map((name) => {
  const folder = join(root, 'node_modules', name);
  const manifest = readManifest(folder);
  const { file, holder } = licenceOf(folder, manifest);
  if (!file) throw new Error(`${name} is bundled into the page and has no licence file`);
  return { ...manifest, holder, text: `${name}:\n${readFileSync(join(folder, file), 'utf8')}` };
});
if (page.length > 0) {
  const license = [...new Set(page.map((one) => one.license))].join(' and ');
  const holders = page.map((one) => one.holder).join('\n ');
  stanzas.push(stanza(`${prefix}/dist/page/*`, holders, { license }, page.map((one) => one.text).join('\n')));
}
console.log(stanzas.join('\n'));

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;
}

/** Returns the licence file of a package and the copyright holder. */
function licenceOf(folder: string, { name, author }: Manifest): { file: string | undefined; holder: string } {
  const file = readdirSync(folder).find((one) => /^(licen[cs]e|copying)/i.test(one));
  const lines = file ? readFileSync(join(folder, file), 'utf8').split('\n') : [];
  const notice = lines.map((line) => /^\W*copyright\s+(?:\(c\)|©|\d)\s*(.*)/i.exec(line)?.[0]).find(Boolean);
  const written = typeof author === 'string' ? author : author?.name;
  return {
    file,
    holder: notice?.replace(/^\W*copyright\s*(?:\(c\)|©)?\s*/i, '') || written || `the authors of ${name}`,
  };
}

/** Returns the packages that the pages import. */
function bundled(): string[] {
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;
  const sources = globSync('src/page/**/*.{ts,tsx}', { cwd: root }).map((file) =>
    readFileSync(join(root, file), 'utf8'),
  );
  return Object.keys({ ...dependencies, ...devDependencies })
    .filter((name) => sources.some((source) => source.includes(`from '${name}'`) || source.includes(`from '${name}/`)))
    .sort();
}

function stanza(files: string, holder: string, { license }: Pick<Manifest, 'license'>, text: string): string {
  const body = text.split('\n').map((line) => ` ${line.trim() || '.'}`);
  return [`Files: ${files}`, `Copyright: ${holder}`, `License: ${license ?? 'see-text'}`, ...body, ''].join('\n');
}
