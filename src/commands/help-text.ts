import { type Command, Help } from 'commander';
import { fitted, wrapped } from '../base/table.ts';

/** Columns that a description needs beside its term; where it has fewer it stands below. */
const MIN_ROOM = 30;
const INDENT = '      ';

/** Help fits the terminal, down to 40 columns. Verbs that are defined afterwards take this over. */
export function fitHelp(program: Command): Command {
  const width = (stream: NodeJS.WriteStream) => (stream.isTTY ? stream.columns : undefined) as number;
  return program
    .configureHelp({
      minWidthToWrap: 20,
      formatItem(term, termWidth, description, helper) {
        const columns = helper.helpWidth ?? 80;
        if (columns - termWidth - 4 >= MIN_ROOM || description === '')
          return Help.prototype.formatItem.call(this, term, termWidth, description, helper);
        const below = wrapped(description, columns - INDENT.length).map((line) => `${INDENT}${line}`);
        return [`  ${term}`, ...below].join('\n');
      },
    })
    .configureOutput({
      getOutHelpWidth: () => width(process.stdout),
      getErrHelpWidth: () => width(process.stderr),
      writeOut: (text) => process.stdout.write(fitted(text, process.stdout)),
      writeErr: (text) => process.stderr.write(fitted(text, process.stderr)),
    });
}
