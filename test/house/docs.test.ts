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

describe('the pages', () => {
  it.each(pages)('%s has no link that leads nowhere', (page) => {
    const text = readFileSync(join(ROOT, page), 'utf8');
    const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1]!);
    const dead = targets
      .filter((target) => !/^[a-z]+:/.test(target))
      .map((target) => target.split('#')[0]!)
      .filter((target) => target !== '' && !existsSync(join(ROOT, dirname(page), target)));
    expect(dead).toEqual([]);
  });
});

describe('docs/interface.md', () => {
  it('names every verb', () => {
    const page = readFileSync(join(ROOT, 'docs/interface.md'), 'utf8');
    for (const { name } of VERBS) expect(page, name).toMatch(new RegExp(`^\\| [^|]*\`${name}[ \`]`, 'm'));
  });

  it('has a row for every kind of source, and names what may stand in one', () => {
    const chapter = /^### tags.yaml\n([\s\S]*?)^### /m.exec(readFileSync(join(ROOT, 'docs/interface.md'), 'utf8'))![1]!;
    for (const { kind, sourceMembers, valueMembers } of SOURCE_KINDS) {
      expect(chapter, kind).toMatch(new RegExp(`^\\| \`${kind}\` \\|`, 'm'));
      const members = [...Object.keys(sourceMembers), ...Object.keys(valueMembers)];
      expect(members.filter((member) => !new RegExp(`\\b${member}\\b`).test(chapter))).toEqual([]);
    }
  });
});

describe('docs/architecture.md', () => {
  it('links the folder of every kind of source', () => {
    const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
    for (const { kind } of SOURCE_KINDS) expect(page).toContain(`](../src/sources/${kind}/)`);
  });
});

describe('the recipes of CONTRIBUTING.md', () => {
  const text = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  // What a walk made and took away again is not there.
  const paragraphs = text.slice(text.indexOf('\n## Recipes')).split('\n\n');
  const recipes = paragraphs.filter((paragraph) => !paragraph.startsWith('Walked ')).join('\n\n');
  /** Paths in code, `<kind>` and the like filled in by one that there is. */
  const named = [...recipes.matchAll(/`((?:src|test|docs|config|scripts)\/[^`\s]*|[A-Z]+\.md)`/g)].map(([, path]) =>
    path!.replaceAll('<kind>', 'host').replaceAll('<verb>', 'session').replaceAll('<type>', 'node_appeared'),
  );

  it('name files and folders that are there', () => {
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

describe('citations in the code', () => {
  const platform = readFileSync(join(ROOT, 'docs/platform.md'), 'utf8');
  const sections = new Set([...platform.matchAll(/^#{2,3} ([0-9.]+) /gm)].map((match) => match[1]!));
  const files = [
    ...['src', 'test'].flatMap((folder) => filesBelow(folder, /\.tsx?$/)),
    ...filesBelow('scripts', /\.(ts|mjs)$|^[\w-]+$/),
    // Tools that a script has installed for itself are not ours.
  ].filter((file) => file !== 'test/house/docs.test.ts' && !file.includes('/node_modules/'));

  /** What of every file's text an expression finds and a rule does not let pass. */
  const found = (expression: RegExp, isDead: (citation: string) => boolean) =>
    files.flatMap((file) =>
      [...readFileSync(join(ROOT, file), 'utf8').matchAll(expression)]
        .filter(([, citation]) => isDead(citation!))
        .map(([words]) => `${file}: ${words}`),
    );

  it('of the platform name sections that its page has', () => {
    expect(sections.size).toBeGreaterThan(40);
    const dead = found(
      /\b[Pp]latform ([0-9]+(?:\.[0-9]+)*)\b(?!\s*(?:s|ms|x)\b)/g,
      (section) => !sections.has(section),
    );
    expect(dead).toEqual([]);
  });

  it('of an invariant name one that docs/architecture.md has', () => {
    const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
    const chapter = /^## What must always hold\n([\s\S]*?)^## /m.exec(page)![1]!;
    const numbers = new Set([...chapter.matchAll(/^(\d+)\. /gm)].map((match) => match[1]!));
    expect(numbers.size).toBe(10);
    expect(found(/\b[Ii]nvariant (\d+)\b/g, (number) => !numbers.has(number))).toEqual([]);
  });

  it('of a page name one that is there', () => {
    expect(found(/\b(docs\/[\w/-]+\.md)\b/g, (page) => !existsSync(join(ROOT, page)))).toEqual([]);
  });

  it('are of nothing that stands outside the repository', () => {
    const outside = /(?<!-)\b([Ss]pec,? (?:section )?\d+(?:\.\d+)*|INTERFACE\.md|DESIGN\.md|STYLE\.md)\b/g;
    expect(found(outside, () => true)).toEqual([]);
  });
});
