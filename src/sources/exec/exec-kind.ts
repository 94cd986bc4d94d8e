import { accessSync, constants, statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf } from '../../base/errors.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { Members } from '../../config/source-kinds.ts';
import { readDurationMember } from '../duration-member.ts';
import { readZone, ZONE_MEMBER } from '../intake/logger-time.ts';
import type { SourceKind } from '../source-kind.ts';
import type { ExecSpec, ExecValue } from './exec-source.ts';

const INSTEAD = 'use a value such as [/opt/site/read-probe, "--all"]';
const TIMEOUT = { minMs: 100, maxMs: 7 * 86_400_000, range: 'between 100ms and 7d', example: '30s' };

/** A program that prints values: `probe: { exec: [/opt/site/read-probe, "--all"] }`. */
export const EXEC: SourceKind<ExecSpec, ExecValue> = {
  kind: 'exec',
  example: 'exec: [/opt/site/read-probe]',
  runsProgram: true,
  isTestedWhileRunning: true,
  sourceMembers: {
    exec: {
      type: 'array',
      minItems: 1,
      maxItems: 256,
      items: { type: 'string', maxLength: 4096, title: 'an argument of the command' },
      title: 'a list with a program and its arguments',
      description: 'Exec: program that prints values, and its arguments. Runs without a shell.',
      examples: [['/opt/site/read-probe', '--all']],
    },
    format: {
      enum: ['ndjson', 'lines'],
      default: 'ndjson',
      description: 'Exec: output format, one JSON value per line or InfluxDB line protocol.',
    },
    timeout: DURATION_SCHEMA,
    zone: ZONE_MEMBER,
  },
  valueMembers: {},
  everyMs: 0,
  readSource(raw: Members, report) {
    const [program = '', ...rest] = (raw.exec as unknown[]).map(String);
    const isEmpty = program.trim() === '';
    if (isEmpty || [program, ...rest].some((part) => part.includes('\u0000'))) {
      return report.problem('exec', `the command ${isEmpty ? 'is empty' : 'contains a null byte'}`, INSTEAD);
    }
    // A name without a path is looked up in PATH.
    const file = program.includes('/') && !isAbsolute(program) ? report.pathOf(program) : program;
    const problem = file.includes('/') ? executableProblem(file) : undefined;
    if (problem) report.warning('exec', `${printable(file)} ${problem[0]}`, problem[1]);
    const timeoutMs = readDurationMember(raw, 'timeout', undefined, TIMEOUT, report);
    if (raw.timeout !== undefined && timeoutMs === undefined) return undefined;
    const format = (raw.format ?? 'ndjson') as ExecSpec['format'];
    if (raw.zone !== undefined && format === 'lines') {
      return report.problem(
        'zone',
        'zone requires format: ndjson, because timestamps of lines are numbers',
        'remove it',
      );
    }
    const zone = readZone(raw, report);
    return { command: [file, ...rest], format, ...(timeoutMs === undefined ? {} : { timeoutMs }), ...zone };
  },
  readValue: () => ({}),
  addressOf: ({ command }) => command[0],
  async open(context) {
    const { ExecSource } = await import('./exec-source.ts');
    return new ExecSource(context);
  },
};

/** Returns the reason why a file cannot be executed, or `undefined` if there is none or it cannot be determined. */
function executableProblem(file: string): [reason: string, instead: string] | undefined {
  try {
    if (!statSync(file).isFile()) return ['is not a file', 'set the path of a program'];
    accessSync(file, constants.X_OK);
  } catch (error) {
    const code = codeOf(error) ?? '';
    if (/^ENO(ENT|TDIR)$/.test(code)) return ['does not exist', 'install it, or set the path of a program'];
    if (code === 'EACCES') return ['is not executable', `run chmod 755 ${file}`];
  }
  return undefined;
}
