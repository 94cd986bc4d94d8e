import { accessSync, constants, statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf } from '../../base/errors.ts';
import { readDuration } from '../../base/quantity.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SourceKind } from '../source-kind.ts';
import type { ExecSpec, ExecValue } from './exec-source.ts';

const INSTEAD = 'use a value such as [/opt/site/read-probe, "--all"]';
const MIN_TIMEOUT_MS = 100;
const MAX_TIMEOUT_MS = 7 * 86_400_000;

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
      items: { type: ['string', 'number', 'boolean'], maxLength: 4096, title: 'an argument of the command' },
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
  },
  valueMembers: {},
  everyMs: 0,
  readSource(raw: Members, report) {
    const [program = '', ...rest] = (raw.exec as unknown[]).map(String);
    if (program.trim() === '') {
      report.problem('exec', 'the command is empty', INSTEAD);
      return undefined;
    }
    if ([program, ...rest].some((part) => part.includes('\u0000'))) {
      report.problem('exec', 'the command contains a null byte', 'remove it');
      return undefined;
    }
    // A name without a path is looked up in PATH.
    const file = program.includes('/') && !isAbsolute(program) ? report.pathOf(program) : program;
    const problem = file.includes('/') ? executableProblem(file) : undefined;
    if (problem) report.warning('exec', `${printable(file)} ${problem.reason}`, problem.instead);
    const timeoutMs = raw.timeout === undefined ? undefined : readTimeout(String(raw.timeout), report);
    if (raw.timeout !== undefined && timeoutMs === undefined) return undefined;
    const format = (raw.format ?? 'ndjson') as ExecSpec['format'];
    return { command: [file, ...rest], format, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
  },
  readValue: () => ({}),
  addressOf: ({ command }) => command[0],
  async open(context) {
    const { ExecSource } = await import('./exec-source.ts');
    return new ExecSource(context);
  },
};

function readTimeout(text: string, report: MemberReport): number | undefined {
  const reading = readDuration(text);
  const ms = 'value' in reading ? reading.value : Number.NaN;
  if (ms >= MIN_TIMEOUT_MS && ms <= MAX_TIMEOUT_MS) return ms;
  const reason = 'reason' in reading ? reading.reason : ms < MIN_TIMEOUT_MS ? 'is too short' : 'is too long';
  report.problem(
    'timeout',
    `timeout "${printable(text)}" ${reason}`,
    'use a duration from 100ms to 7d, for example 30s',
  );
  return undefined;
}

/**
 * Returns the reason why a file cannot be executed, or `undefined` if it can be executed or if this cannot be
 * determined.
 */
function executableProblem(file: string): { reason: string; instead: string } | undefined {
  try {
    if (!statSync(file).isFile()) return { reason: 'is not a file', instead: 'set the path of a program' };
    accessSync(file, constants.X_OK);
    return undefined;
  } catch (error) {
    switch (codeOf(error)) {
      case 'ENOENT':
      case 'ENOTDIR':
        return { reason: 'does not exist', instead: 'install it, or set the path of a program' };
      case 'EACCES':
        return { reason: 'is not executable', instead: `run chmod 755 ${file}` };
      default:
        return undefined;
    }
  }
}
