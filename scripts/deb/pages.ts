import { existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';

/**
 * `pages.ts ROOT TREE` writes README.md and the pages of docs/ to /usr/share/doc/tagferry of the package. Links lead to
 * the installed file; a link to a file that only the source contains becomes text. The index of docs/ becomes index.md,
 * next to README.md.
 */
const [root, tree] = process.argv.slice(2) as [string, string];
const FOLDER = '/usr/share/doc/tagferry';
/** Paths of the source that the package contains below FOLDER under another name. */
const INSTALLED_AS: Readonly<Record<string, string>> = {
  'CHANGELOG.md': 'changelog.gz',
  'config/monitoring': 'examples/monitoring',
  'systemd/examples': 'examples',
  'docs/guide/nginx-site.conf': 'examples/nginx-site.conf',
};

/** Pages for tagferry developers. */
const SOURCE_ONLY = new Set(['docs/internals/architecture.md', 'docs/internals/dependencies.md']);
const installed = new Map(
  ['README.md', ...globSync('docs/**/*.md', { cwd: root })]
    .filter((page) => !SOURCE_ONLY.has(page))
    .map((page) => [page, page === 'docs/README.md' ? 'index.md' : page.replace(/^docs\//, '')]),
);

for (const [page, place] of installed) {
  const target = join(tree, FOLDER, place);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, rewritten(page, place), { mode: 0o644 });
}

function rewritten(page: string, place: string): string {
  const text = readFileSync(join(root, page), 'utf8');
  const withLinks = text.replaceAll(
    /!?\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)/g,
    (whole, words: string, to: string, anchor = '') => {
      if (/^[a-z]+:/.test(to)) return whole;
      const file = normalize(join(dirname(page), to)).replace(/\/$/, '');
      if (!existsSync(join(root, file))) throw new Error(`${page}: ${to} does not exist`);
      const target = installedPath(file);
      if (target === undefined) return `${words} (in the source)`;
      return `[${words === to ? target : words}](${relative(dirname(join(FOLDER, place)), target)}${anchor})`;
    },
  );
  // Paths that are mentioned without a link.
  return withLinks.replaceAll(/(?<![\w/])docs\/[a-z-]+\/[a-z-]+\.md\b/g, (path) => installed.get(path) ?? path);
}

/** Returns the absolute path of a source file in the package, or `undefined` if the package does not contain it. */
function installedPath(file: string): string | undefined {
  if (file === 'config') return '/usr/share/tagferry';
  const page = installed.get(file);
  if (page !== undefined) return join(FOLDER, page);
  for (const [from, to] of Object.entries(INSTALLED_AS)) {
    if (file === from || file.startsWith(`${from}/`)) return join(FOLDER, file.replace(from, to));
  }
  return undefined;
}
