import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { VERBS } from '../../src/commands/command-line.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';

const ROOT = join(import.meta.dirname, '../..');

function filesBelow(folder: string, ending: RegExp): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && ending.test(entry.name))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));
}

const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...filesBelow('docs', /\.md$/)];

/** Anchors of a page's headings, as GitHub derives them. */
function anchorsOf(page: string): Set<string> {
  const headings = readFileSync(join(ROOT, page), 'utf8').matchAll(/^#{1,6} (.+)$/gm);
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-');
  return new Set(Array.from(headings, ([, heading]) => slug(heading!)));
}

describe('documentation pages', () => {
  it.each(pages)('%s has no dead link', (page) => {
    const text = readFileSync(join(ROOT, page), 'utf8');
    const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1]!);
    const dead = targets
      .filter((target) => !/^[a-z]+:/.test(target))
      .filter((target) => {
        const [path = '', anchor] = target.split('#');
        const file = path === '' ? page : join(dirname(page), path);
        if (!existsSync(join(ROOT, file))) return true;
        return anchor !== undefined && file.endsWith('.md') && !anchorsOf(file).has(anchor);
      });
    expect(dead).toEqual([]);
  });
});

describe('docs/reference/cli.md', () => {
  it('lists every command', () => {
    const page = readFileSync(join(ROOT, 'docs/reference/cli.md'), 'utf8');
    for (const { name } of VERBS) expect(page, name).toMatch(new RegExp(`^\\| [^|]*\`${name}[ \`]`, 'm'));
  });
});

describe('docs/reference/tags.md', () => {
  it('has a row for every kind of source, with all members', () => {
    const page = readFileSync(join(ROOT, 'docs/reference/tags.md'), 'utf8');
    for (const { kind, sourceMembers, valueMembers } of SOURCE_KINDS) {
      expect(page, kind).toMatch(new RegExp(`^\\| \`${kind}\` \\|`, 'm'));
      const members = [...Object.keys(sourceMembers), ...Object.keys(valueMembers)];
      expect(members.filter((member) => !new RegExp(`\\b${member}\\b`).test(page))).toEqual([]);
    }
  });
});

describe('docs/internals/architecture.md', () => {
  it('links to the folder of every kind of source', () => {
    const page = readFileSync(join(ROOT, 'docs/internals/architecture.md'), 'utf8');
    for (const { kind } of SOURCE_KINDS) expect(page).toContain(`](../../src/sources/${kind}/)`);
  });
});

describe('CONTRIBUTING.md recipes', () => {
  const text = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  // Files created while testing a recipe no longer exist.
  const paragraphs = text.slice(text.indexOf('\n## Recipes')).split('\n\n');
  const recipes = paragraphs.filter((paragraph) => !paragraph.startsWith('The recipe was tested with ')).join('\n\n');
  /** Paths in code spans, with an existing example for `<kind>` and similar placeholders. */
  const named = [...recipes.matchAll(/`((?:src|test|docs|config|scripts)\/[^`\s]*|[A-Z]+\.md)`/g)].map(([, path]) =>
    path!.replaceAll('<kind>', 'host').replaceAll('<verb>', 'session').replaceAll('<type>', 'node_appeared'),
  );

  it('refer to existing files and folders', () => {
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

describe('code citations', () => {
  const platform = readFileSync(join(ROOT, 'docs/reference/platform.md'), 'utf8');
  const sections = new Set([...platform.matchAll(/^#{2,3} ([0-9.]+) /gm)].map((match) => match[1]!));
  const files = [
    ...['src', 'test'].flatMap((folder) => filesBelow(folder, /\.tsx?$/)),
    ...filesBelow('scripts', /\.(ts|mjs)$|^[\w-]+$/),
    // Excludes tools that a script has installed.
  ].filter((file) => file !== 'test/house/docs.test.ts' && !file.includes('/node_modules/'));

  /** Returns an expression's matches in all files that are dead citations. */
  const found = (expression: RegExp, isDead: (citation: string) => boolean) =>
    files.flatMap((file) =>
      [...readFileSync(join(ROOT, file), 'utf8').matchAll(expression)]
        .filter(([, citation]) => isDead(citation!))
        .map(([words]) => `${file}: ${words}`),
    );

  it('refer to existing platform sections', () => {
    expect(sections.size).toBeGreaterThan(40);
    const dead = found(
      /\b[Pp]latform ([0-9]+(?:\.[0-9]+)*)\b(?!\s*(?:s|ms|x)\b)/g,
      (section) => !sections.has(section),
    );
    expect(dead).toEqual([]);
  });

  it('refer to existing invariants', () => {
    const page = readFileSync(join(ROOT, 'docs/internals/architecture.md'), 'utf8');
    const chapter = /^## Invariants\n([\s\S]*?)^## /m.exec(page)![1]!;
    const numbers = new Set([...chapter.matchAll(/^(\d+)\. /gm)].map((match) => match[1]!));
    expect(numbers.size).toBe(10);
    expect(found(/\b[Ii]nvariant (\d+)\b/g, (number) => !numbers.has(number))).toEqual([]);
  });

  it('refer to existing pages', () => {
    expect(found(/\b(docs\/[\w/-]+\.md)\b/g, (page) => !existsSync(join(ROOT, page)))).toEqual([]);
  });

  it('refer to nothing outside the repository', () => {
    const outside = /(?<!-)\b([Ss]pec,? (?:section )?\d+(?:\.\d+)*|INTERFACE\.md|DESIGN\.md|STYLE\.md)\b/g;
    expect(found(outside, () => true)).toEqual([]);
  });
});
