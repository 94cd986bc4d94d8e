import { Command } from 'commander';
import { VERBS } from '../../src/commands/command-line.ts';
import { roff, sentence } from './roff.ts';

/** `man-verbs.ts` prints the verbs and their sub-verbs for the manual page, from the program itself. */
for (const { name, summary, load } of VERBS) {
  const program = new Command('tagferry');
  (await load()).define(program);
  const verb = program.commands.find((command) => command.name() === name);
  if (!verb) throw new Error(`${name} does not define its verb`);
  const lines = ['.TP', `.B ${roff(name)}`, sentence(summary)];
  if (verb.commands.length > 0) {
    lines.push('.RS');
    for (const sub of verb.commands)
      lines.push('.TP', `.B ${roff(sub.name())}`, sentence(sub.description() || sub.summary()));
    lines.push('.RE');
  }
  console.log(lines.join('\n'));
}
process.exit();
