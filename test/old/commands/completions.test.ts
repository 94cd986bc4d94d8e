/** Completions in real zsh, fish and bash, compared with the verbs and options of the program. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VERBS } from '../../../src/commands/command-line.ts';
import { LEVELS } from '../../../src/commands/logs/log-line.ts';
import { MAIN } from '../../built-agent.ts';

const run = promisify(execFile);
const SCRIPT = join(import.meta.dirname, '../../../scripts/deb/completions.ts');
const BASH = join(import.meta.dirname, '../../../scripts/deb/tagferry.bash-completion');

let folder: string;
/** Expected words at the end of each line: sub-verbs and options. */
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

/** Parses `> LINE`, followed by one word per line. */
function answers(printed: string): Map<string, string[]> {
  const blocks = printed.split(/^> /m).slice(1);
  return new Map(
    blocks.map((block) => {
      const [line, ...words] = block.split('\n');
      return [line!, [...new Set(words.filter((word) => word !== ''))]];
    }),
  );
}

async function ask(
  shell: 'zsh' | 'fish' | 'bash',
  lines: readonly string[],
  path = process.env.PATH,
): Promise<Map<string, string[]>> {
  const options = { maxBuffer: 16_000_000, cwd: folder, env: { ...process.env, PATH: path } };
  if (shell === 'bash') {
    const loop = `source "$1"; shift; for line; do echo "> $line"; COMP_WORDS=($line); [[ $line != *' ' ]] || COMP_WORDS+=('')
      COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _tagferry; printf '%s\\n' "\${COMPREPLY[@]}"; done`;
    return answers((await run('bash', ['-c', loop, 'bash', BASH, ...lines], options)).stdout);
  }
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

describe('object ID completion', () => {
  const LINES = ['tagferry buffer ls --asset 88', 'tagferry assets SN'];
  const OFFERED = [
    ['881', '882'],
    ['SN$(touch,hacked)', 'SN-881'],
  ];
  /** Substitute for the program, with its output for each line. */
  const PROGRAM = `#!/bin/sh
case "$*" in
'assets --complete asset') printf '881\\tasset SN-881\\n882\\tasset\\n990\\tasset\\n' ;;
'assets --complete') printf '881\\tasset SN-881\\nSN-881\\tasset SN-881\\nSN$(touch,hacked)\\tasset\\n' ;;
esac
`;
  const quoted = (word: string) => word.replaceAll(/\\(?=[$(),])/g, '');

  it.for(['zsh', 'fish', 'bash'] as const)(
    'offers the IDs known to the gateway in %s, and never executes them',
    async (shell) => {
      const bin = join(folder, 'bin');
      mkdirSync(bin, { recursive: true });
      writeFileSync(join(bin, 'tagferry'), PROGRAM, { mode: 0o755 });
      const path = `${bin}:${process.env.PATH}`;
      const offered = await ask(shell, LINES, path);
      expect(LINES.map((line) => offered.get(line)?.map(quoted).toSorted())).toEqual(OFFERED);
      expect(existsSync(join(folder, 'hacked'))).toBe(false);
    },
  );
});

describe('bash completion', () => {
  it('offers the values of options with fixed choices', async () => {
    const bin = join(folder, 'own');
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'tagferry'), `#!/bin/sh\nexec ${process.execPath} ${MAIN} "$@"\n`, { mode: 0o755 });
    const lines = ['tagferry logs --level ', 'tagferry buffer export --format c'];
    const offered = await ask('bash', lines, `${bin}:${process.env.PATH}`);
    expect(lines.map((line) => offered.get(line))).toEqual([[...LEVELS], ['csv']]);
  });
});

describe.for(['zsh', 'fish'] as const)('%s', (shell) => {
  it('offers exactly the verbs, sub-verbs and options that the program supports', async () => {
    expect(wanted.size).toBeGreaterThan(80);
    const offered = await ask(shell, [...wanted.keys()]);
    for (const [line, words] of wanted) {
      expect(offered.get(line)?.toSorted(), line).toEqual([...new Set(words)].toSorted());
    }
  });

  it('supports aliases, argument values, files, and --config before the verb', async () => {
    const lines = [
      'tagferry permissions revoke --dry',
      'tagferry buffer export --format ',
      'tagferry --config /etc webhook rot',
      'tagferry logs --level ',
    ];
    const file = `tagferry buffer import ${folder}/_tag`;
    const offered = await ask(shell, [...lines, file]);
    expect(lines.map((line) => offered.get(line)?.toSorted())).toEqual([
      ['--dry-run'],
      ['csv', 'ndjson'],
      ['rotate-secret'],
      LEVELS.toSorted(),
    ]);
    expect(offered.get(file)?.join()).toContain('_tagferry');
  });
});
