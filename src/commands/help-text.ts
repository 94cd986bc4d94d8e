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
      writeOut: (text) => process.stdout.write(fittedHelp(text, process.stdout)),
      writeErr: (text) => process.stderr.write(fittedHelp(text, process.stderr)),
    });
}

/** Wraps at the terminal; in a pipe the paragraphs below the options, as wide as the options themselves. */
function fittedHelp(text: string, stream: NodeJS.WriteStream): string {
  if (stream.isTTY) return fitted(text, stream);
  return text.replaceAll(/^\S.*$/gm, (line) => wrapped(line, 80).join('\n'));
}
