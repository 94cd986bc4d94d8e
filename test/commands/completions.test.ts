/** What zsh and fish complete, asked from the shells themselves, beside the verbs and options that the program has. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VERBS } from '../../src/commands/command-line.ts';

const run = promisify(execFile);
const SCRIPT = join(import.meta.dirname, '../../scripts/deb/completions.ts');

let folder: string;
/** What may stand at the end of each line: sub-verbs of those that have some, and options. */
const wanted = new Map<string, readonly string[]>();

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-completions-'));
  for (const [shell, file] of [
    ['zsh', '_tagferry'],
    ['fish', 'tagferry.fish'],
  ] as const) {
    writeFileSync(join(folder, file), (await run(process.execPath, [SCRIPT, shell])).stdout);
  }
  wanted.set(
    'tagferry ',
    VERBS.map(({ name }) => name),
  );
  for (const { name, load } of VERBS) {
    const program = new Command('tagferry');
    (await load()).define(program);
    collect(program.commands.find((command) => command.name() === name)!, `tagferry ${name}`);
  }
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function collect(command: Command, line: string): void {
  const subs = command.commands.filter((sub) => sub.name() !== 'help');
  if (subs.length > 0)
    wanted.set(
      `${line} `,
      subs.map((sub) => sub.name()),
    );
  const options = command.options.filter((option) => !option.hidden).map((option) => option.long!);
  wanted.set(`${line} --`, [...options, '--config', '--help']);
  for (const sub of subs) collect(sub, `${line} ${sub.name()}`);
}

/** `> LINE`, then a word a line. */
function answers(printed: string): Map<string, string[]> {
  const blocks = printed.split(/^> /m).slice(1);
  return new Map(
    blocks.map((block) => {
      const [line, ...words] = block.split('\n');
      return [line!, [...new Set(words.filter((word) => word !== ''))]];
    }),
  );
}

async function ask(shell: 'zsh' | 'fish', lines: readonly string[]): Promise<Map<string, string[]>> {
  const options = { maxBuffer: 16_000_000 };
  if (shell === 'zsh') {
    const asking = [join(import.meta.dirname, 'complete.zsh'), folder, ...lines];
    return answers((await run('zsh', asking, options)).stdout);
  }
  const loop =
    'source $argv[1]; for line in $argv[2..-1]; echo "> $line"; complete -C $line | string split -f1 \\t; end; true';
  return answers(
    (await run('fish', ['--no-config', '-c', loop, join(folder, 'tagferry.fish'), ...lines], options)).stdout,
  );
}

describe.for(['zsh', 'fish'] as const)('%s', (shell) => {
  it('offers every verb, sub-verb and option of the program, and no other', async () => {
    expect(wanted.size).toBeGreaterThan(80);
    const offered = await ask(shell, [...wanted.keys()]);
    for (const [line, words] of wanted) {
      expect(offered.get(line)?.toSorted(), line).toEqual([...new Set(words)].toSorted());
    }
  });

  it('knows aliases, values to choose from, files, and a --config before the verb', async () => {
    const lines = [
      'tagferry permissions revoke --dry',
      'tagferry buffer export --format ',
      'tagferry --config /etc webhook rot',
    ];
    const file = `tagferry buffer import ${folder}/_tag`;
    const offered = await ask(shell, [...lines, file]);
    expect(lines.map((line) => offered.get(line))).toEqual([['--dry-run'], ['csv', 'ndjson'], ['rotate-secret']]);
    expect(offered.get(file)?.join()).toContain('_tagferry');
  });
});
