import { isAbsolute } from 'node:path';
import { printable } from '../../config/problem.ts';
import type { Members } from '../../config/source-kinds.ts';
import type { SourceKind } from '../source-kind.ts';
import type { ExecSpec, ExecValue } from './exec-spec.ts';
import { executableProblem } from './executable.ts';

const INSTEAD = 'write for example [/opt/site/read-probe, "--all"]';

/** A program that prints values: `probe: { exec: [/opt/site/read-probe, "--all"] }`. */
export const EXEC: SourceKind<ExecSpec, ExecValue> = {
  kind: 'exec',
  example: 'exec: [/opt/site/read-probe]',
  runsProgram: true,
  sourceMembers: {
    exec: {
      type: 'array',
      minItems: 1,
      maxItems: 256,
      items: { type: ['string', 'number', 'boolean'], maxLength: 4096, title: 'a word of the command' },
      title: 'a list: the program and its arguments',
      description: 'Exec: a program that prints values, and its arguments. Never read by a shell.',
      examples: [['/opt/site/read-probe', '--all']],
    },
    format: {
      enum: ['ndjson', 'lines'],
      default: 'ndjson',
      description: 'Exec: what the program prints: one JSON value a line, or InfluxDB line protocol.',
    },
  },
  valueMembers: {},
  readSource(raw: Members, report) {
    const [program = '', ...rest] = (raw.exec as unknown[]).map(String);
    if (program.trim() === '') {
      report.problem('exec', 'the command is empty', INSTEAD);
      return undefined;
    }
    if ([program, ...rest].some((part) => part.includes('\u0000'))) {
      report.problem('exec', 'the command holds a zero byte', 'remove it');
      return undefined;
    }
    // A bare name is looked for in PATH, as everywhere.
    const file = program.includes('/') && !isAbsolute(program) ? report.pathOf(program) : program;
    const problem = file.includes('/') ? executableProblem(file) : undefined;
    if (problem) report.warning('exec', `${printable(file)} ${problem.reason}`, problem.instead);
    return { command: [file, ...rest], format: (raw.format ?? 'ndjson') as ExecSpec['format'] };
  },
  readValue: () => ({}),
  addressOf: ({ command }) => command[0],
  async open(context) {
    const { ExecSource } = await import('./exec-source.ts');
    return new ExecSource(context);
  },
  async test(context) {
    const { testExec } = await import('./test-exec.ts');
    return await testExec(context);
  },
};
