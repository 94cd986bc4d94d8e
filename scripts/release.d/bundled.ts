import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** An npm package inside an unpacked .deb. */
export interface Bundled {
  /** Path as in package-lock.json. */
  path: string;
  name: string;
  version: string;
  /** As declared in package.json. */
  licence: string | undefined;
  /** Licence files. */
  texts: readonly string[];
}

/** Returns the packages in an unpacked .deb (`tree`), by path. */
export function bundledPackages(tree: string): Bundled[] {
  const root = join(tree, 'usr/lib/tagferry');
  const found: Bundled[] = [];
  const look = (modules: string) => {
    for (const entry of readdirSync(join(root, modules))) {
      if (entry.startsWith('@')) look(join(modules, entry));
      else if (existsSync(join(root, modules, entry, 'package.json'))) add(join(modules, entry));
    }
  };
  const add = (path: string) => {
    found.push(packageAt(root, path));
    if (existsSync(join(root, path, 'node_modules'))) look(join(path, 'node_modules'));
  };
  look('node_modules');
  return found.toSorted((one, other) => (one.path < other.path ? -1 : 1));
}

/** Path of the package list in tagferry-opcua. */
const LIST = 'usr/share/doc/tagferry-opcua/packages.txt';

/** Returns the packages in the tagferry-opcua bundle, from the checkout (`root`). */
export function packagesOfReader(root: string, tree: string): Bundled[] {
  const paths = readFileSync(join(tree, LIST), 'utf8').split('\n').filter(Boolean);
  return paths.map((path) => packageAt(root, path));
}

function packageAt(root: string, path: string): Bundled {
  const { name, version, license, licenses } = JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8')) as {
    name: string;
    version: string;
    license?: string | { type?: string };
    licenses?: { type?: string }[];
  };
  const declared =
    typeof license === 'string' ? license : (license?.type ?? licenses?.map(({ type }) => type).join(' OR '));
  const texts = readdirSync(join(root, path)).filter((file) => /^(licen[cs]e|copying)/i.test(file));
  const files = texts.toSorted().map((file) => join(root, path, file));
  return { path, name, version, licence: declared, texts: files };
}

/** Returns the package that `require(name)` finds from another package. */
export function resolved(from: string, name: string, all: ReadonlySet<string>): string | undefined {
  for (let at = from; ; at = dirname(at)) {
    const path = join(at === '.' ? '' : at, 'node_modules', name);
    if (all.has(path)) return path;
    if (at === '.') return undefined;
  }
}
