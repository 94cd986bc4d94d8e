import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';

/**
 * `pages.ts ROOT TREE`: README.md and docs/ for /usr/share/doc/tagferry of the package, side by side. A link leads to where its file is
 * installed; of one to what only the source has the words stay.
 */
const [root, tree] = process.argv.slice(2) as [string, string];
const FOLDER = '/usr/share/doc/tagferry';

const docs = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));
/** For people who change tagferry: they have the source. */
const OF_THE_SOURCE = new Set(['architecture.md', 'dependencies.md']);
const installed = docs.filter((name) => !OF_THE_SOURCE.has(name));

for (const page of ['README.md', ...installed.map((name) => `docs/${name}`)]) {
  const target = join(tree, FOLDER, page.split('/').at(-1)!);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, rewritten(page), { mode: 0o644 });
}

function rewritten(page: string): string {
  const text = readFileSync(join(root, page), 'utf8');
  return (
    text
      .replaceAll(/\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)/g, (whole, words: string, to: string, anchor = '') => {
        if (/^[a-z]+:/.test(to)) return whole;
        const file = normalize(join(dirname(page), to));
        if (!existsSync(join(root, file))) throw new Error(`${page}: ${to} is not there`);
        const place = placeOf(file);
        if (place === undefined) return `${words} (in the source)`;
        // The words of a link to a page are often its path.
        return `[${words !== to ? words : place.startsWith('..') ? join(FOLDER, place) : place}](${place}${anchor})`;
      })
      // Named without a link.
      .replaceAll(/\bdocs\/([a-z-]+\.md)\b/g, (words, name: string) => (installed.includes(name) ? name : words))
  );
}

/** Where a file of the source stands in the package, seen from the pages; `undefined` where it is not in it. */
function placeOf(file: string): string | undefined {
  const name = file.replace(/^docs\//, '').replace(/\/$/, '');
  if (file.startsWith('docs/') && installed.includes(name)) return name;
  if (name === 'README.md') return name;
  if (name === 'CHANGELOG.md') return 'changelog.gz';
  if (name === 'config') return relative(FOLDER, '/usr/share/tagferry');
  for (const [from, to] of [
    ['config/monitoring', 'examples/monitoring'],
    ['systemd/examples', 'examples'],
    ['nginx-site.conf', 'examples/nginx-site.conf'],
  ] as const) {
    if (name === from || name.startsWith(`${from}/`)) return name.replace(from, to);
  }
  return undefined;
}
