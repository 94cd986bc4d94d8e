/**
 * Help texts and hints: units of defaults, wrapping at any width, and references only to files on an installed gateway.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Command, Command as Program } from 'commander';
import { describe, expect, it } from 'vitest';
import { VERBS } from '../../../src/commands/command-line.ts';
import { runVerb } from './verb-run.ts';

const ROOT = join(import.meta.dirname, '../../..');
const DOC = '/usr/share/doc/tagferry';

async function commands(): Promise<Command[]> {
  const found: Command[] = [];
  const collect = (command: Command) => {
    found.push(command);
    for (const sub of command.commands) collect(sub);
  };
  for (const { name, load } of VERBS) {
    const program = new Program('tagferry');
    (await load()).define(program);
    collect(program.commands.find((command) => command.name() === name)!);
  }
  return found;
}

function epilogue(command: Command): string {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
  return text.slice(command.helpInformation().length);
}

describe('help texts', () => {
  it('show the unit of each default duration', async () => {
    const durations = (await commands())
      .flatMap(({ options }) => options)
      .filter(({ flags, defaultValue }) => /<duration>|seconds/.test(flags) && defaultValue !== undefined);
    expect(durations.length).toBeGreaterThan(4);
    for (const { flags, defaultValue, defaultValueDescription } of durations)
      expect(defaultValueDescription ?? defaultValue, flags).toMatch(/^\d+ ?(ms|s|m|h)$/);
  });

  it('have no line breaks within paragraphs below the options', async () => {
    for (const command of await commands())
      expect(epilogue(command), command.name()).not.toMatch(/^\S.{60,}[^.:\n]\n\S/m);
  });

  it('wrap the paragraphs below the options at 80 columns when piped', async () => {
    const { stdout } = await runVerb(['setup', '--help']);
    const paragraph = stdout.slice(stdout.indexOf('Without a terminal')).trimEnd().split('\n');
    expect(paragraph.length).toBeGreaterThan(3);
    for (const line of paragraph.slice(0, -1)) expect(line.length).toBeGreaterThan(60);
    for (const line of paragraph) expect(line.length).toBeLessThanOrEqual(80);
  });
});

describe('hints', () => {
  const sources = globSync('src/**/*.ts', { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const manual = readFileSync(join(ROOT, 'scripts/deb/tagferry.1'), 'utf8');

  it('refer only to documents and examples included in the package', () => {
    const tree = mkdtempSync(join(tmpdir(), 'tagferry-help-'));
    try {
      mkdirSync(join(tree, DOC), { recursive: true });
      execFileSync(process.execPath, [join(ROOT, 'scripts/deb/pages.ts'), ROOT, tree]);
      const examples = readdirSync(join(ROOT, 'systemd/examples')).map((name) => `${DOC}/examples/${name}`);
      const named = [...sources, manual].flatMap(
        (text) => text.match(/\/usr\/share\/doc\/tagferry\/[\w./-]*\w/g) ?? [],
      );
      expect(named.length).toBeGreaterThan(3);
      const missing = named.filter((path) => {
        const isExample = examples.includes(path) || path === `${DOC}/examples`;
        return !isExample && !existsSync(join(tree, path));
      });
      expect(missing).toEqual([]);
    } finally {
      rmSync(tree, { recursive: true, force: true });
    }
  });

  it('do not refer to source files', () => {
    const lines = sources.flatMap((text) => text.split('\n')).filter((line) => !/^\s*(\*|\/\*|\/\/)/.test(line));
    expect(lines.filter((line) => /(?<![\w/])docs\/[a-z-]+\.md/.test(line))).toEqual([]);
  });
});

describe('manual page', () => {
  it('lists every file that determines whether a purge deletes values', () => {
    const postrm = readFileSync(join(ROOT, 'scripts/deb/postrm'), 'utf8');
    const manual = readFileSync(join(ROOT, 'scripts/deb/tagferry.1'), 'utf8');
    expect(postrm).toContain('$config/purge-values');
    for (const path of ['/etc/tagferry/purge-values', '/var/lib/tagferry/']) expect(manual).toContain(`.I ${path}\n`);
    expect(manual).toMatch(/Purging deletes it, unless the buffer contains undelivered values/);
  });
});
