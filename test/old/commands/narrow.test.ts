/** Output on a terminal of 40 columns, such as a phone over SSH or a cabinet panel. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { fitted } from '../../../src/base/table.ts';
import { fitHelp, VERBS } from '../../../src/commands/command-line.ts';
import { MAIN } from '../../built-agent.ts';

const run = promisify(execFile);
const COLUMNS = 40;

/** Returns lines that are too long, except those with a single unbreakable word such as a path. */
function tooLong(text: string): string[] {
  return text.split('\n').filter((line) => line.length > COLUMNS && line.trim().includes(' '));
}

describe('help at 40 columns', () => {
  it('fits the terminal for every verb and sub-verb', async () => {
    const terminal = { isTTY: true, columns: COLUMNS };
    let printed = '';
    const program = fitHelp(new Command('tagferry')).configureOutput({
      getOutHelpWidth: () => COLUMNS,
      writeOut: (text) => {
        printed += fitted(text, terminal);
      },
    });
    for (const { load } of VERBS) (await load()).define(program);
    let commands = 0;
    const look = (command: Command): void => {
      commands++;
      printed = '';
      command.outputHelp();
      expect(printed, command.name()).toContain('--help');
      for (const option of command.options.filter(({ hidden }) => !hidden))
        expect(printed, command.name()).toContain(option.long!);
      expect(tooLong(printed), command.name()).toEqual([]);
      command.commands.forEach(look);
    };
    look(program);
    expect(commands).toBeGreaterThan(80);
  });

  it('fits on a real terminal, for the program and for a verb with long options', async () => {
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
