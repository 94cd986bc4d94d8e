/** What verbs print on a terminal of 40 columns: a telephone over SSH, a panel on the cabinet's door. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { fitted } from '../../src/base/table.ts';
import { VERBS } from '../../src/commands/command-line.ts';
import { fitHelp } from '../../src/commands/help-text.ts';
import { MAIN } from '../built-agent.ts';

const run = promisify(execFile);
const COLUMNS = 40;

/** Lines that are longer, but for a word that has no place to break: an address, a path, an example to copy. */
function tooLong(text: string): string[] {
  return text.split('\n').filter((line) => line.length > COLUMNS && line.trim().includes(' '));
}

describe('on 40 columns', () => {
  it('the help of every verb and sub-verb fits', async () => {
    const terminal = { isTTY: true, columns: COLUMNS };
    let said = '';
    const program = fitHelp(new Command('tagferry')).configureOutput({
      getOutHelpWidth: () => COLUMNS,
      writeOut: (text) => {
        said += fitted(text, terminal);
      },
    });
    for (const { load } of VERBS) (await load()).define(program);
    let commands = 0;
    const look = (command: Command): void => {
      commands++;
      said = '';
      command.outputHelp();
      expect(said, command.name()).toContain('--help');
      for (const option of command.options.filter(({ hidden }) => !hidden))
        expect(said, command.name()).toContain(option.long!);
      expect(tooLong(said), command.name()).toEqual([]);
      command.commands.forEach(look);
    };
    look(program);
    expect(commands).toBeGreaterThan(80);
  });

  it('a real terminal gets it so, from the top and from a verb with long options', async () => {
    for (const verb of ['', 'sandbox']) {
      const command = `stty cols ${COLUMNS}; ${process.execPath} ${MAIN} ${verb} --help`;
      const { stdout } = await run('script', ['-qefc', command, '/dev/null'], {
        env: { ...process.env, TERM: 'xterm' },
      });
      expect(stdout).toContain('--help');
      expect(tooLong(stdout.replaceAll('\r', ''))).toEqual([]);
    }
  });
});
