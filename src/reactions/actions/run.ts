import { type ChildProcess, spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf, messageOf } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';
import { endFamily } from '../../base/programs/family.ts';
import { killBeforeAgent } from '../../base/programs/memory-priority.ts';
import { type ProgramEnd, untilEnded } from '../../base/programs/program-end.ts';
import type { Action } from '../../config/action-kinds.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { ActionContext, ActionKind, ActionParts, ActionResult } from '../action-kind.ts';
import { BoundedOutput } from '../command-output.ts';
import { valuesAt } from '../content-path.ts';

interface RunAction extends Action {
  kind: 'run';
  command: readonly [string, ...string[]];
  timeoutMs: number;
  workingFolder?: string;
}

const TIMEOUT_MS = 30_000;
/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;
/** Time between SIGTERM and SIGKILL at shutdown. Shorter, because systemd kills the remaining processes. */
const SHUTDOWN_GRACE_MS = 500;
const PIPES_MS = 500;
const MAX_OUTPUT_BYTES = 2_000;
const MAX_VARIABLE = 1_000;

/**
 * Runs a command without a shell, with the event's JSON on standard input. Terminates all processes that the command
 * has started.
 */
export const RUN: ActionKind<RunAction> = {
  kind: 'run',
  shape: {
    type: 'array',
    minItems: 1,
    maxItems: 1000,
    items: { type: 'string', title: 'a string', examples: ['FT-101'] },
    title: 'a list with a program and its arguments',
    description: 'Runs a program with arguments, without a shell. The JSON of the event is its standard input.',
    examples: [['/opt/site/close-valve', 'FT-101']],
  },
  members: {
    timeout: { ...DURATION_SCHEMA, description: 'maximum run time. Default: 30s.' },
    working_folder: {
      type: 'string',
      pattern: '^/',
      title: 'an absolute path',
      description: 'working directory of the program.',
      examples: ['/opt/site'],
    },
  },
  runsProgram: true,
  recordsStart: true,

  read({ run, working_folder: workingFolder }, report) {
    const timeoutMs = report.timeout(TIMEOUT_MS);
    const command = (run as unknown[]).map(String) as [string, ...string[]];
    const [program] = command;
    if (program.trim() === '') {
      report.problem('run', 'the command is empty', 'use a value such as [/opt/site/close-valve, FT-101]');
      return undefined;
    }
    if (command.some((part) => part.includes('\u0000'))) {
      report.problem('run', 'the command contains a zero byte', 'remove it');
      return undefined;
    }
    if (isAbsolute(program) && !isFile(program)) {
      const reason = `program ${printable(program)} not found`;
      report.warning('run/0', reason, 'install it, or use its full path', program);
    }
    for (const [at, part] of command.entries()) {
      if (!/\{\{.*\}\}/.test(part)) continue;
      const reason = `run passes ${printable(part)} to the program unchanged`;
      report.warning(`run/${at}`, reason, 'read the event from standard input, as JSON', part);
    }
    if (timeoutMs === undefined) return undefined;
    const folder = workingFolder === undefined ? {} : { workingFolder: workingFolder as string };
    return { kind: 'run', command, timeoutMs, ...folder };
  },

  nameOf: ({ command }) => `run ${command.join(' ')}`,
  targetOf: ({ command }) => `run ${command[0]}`,
  perform: runCommand,
};

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch (error) {
    return codeOf(error) !== 'ENOENT' && codeOf(error) !== 'ENOTDIR';
  }
}

let runs = 0;

async function runCommand(
  action: RunAction,
  context: ActionContext,
  parts: Omit<ActionParts, 'publish'>,
): Promise<ActionResult> {
  const { clock } = parts;
  const mark = `${parts.instance}:${process.pid}:${++runs}`;
  const child = startCommand(action, commandEnvironment(parts.environment ?? process.env, context, mark));
  if (child instanceof Error) return { outcome: 'failed', detail: describeStart(child, action) };
  killBeforeAgent(child.pid);
  const ended = untilEnded(child);
  const closed = new Promise((resolve) => child.once('close', resolve));
  // If no file descriptors are available, the child process has no pipes, and an error event follows.
  if (!child.stdin || !child.stdout || !child.stderr) return resultOf(await ended, undefined, action);
  const output = new BoundedOutput(child.stdout, MAX_OUTPUT_BYTES, clock);
  const errors = new BoundedOutput(child.stderr, MAX_OUTPUT_BYTES, clock);
  // EPIPE is expected, because most commands do not read standard input.
  child.stdin.on('error', () => {});
  child.stdin.end(context.event.payload);

  const cutOff = new AbortController();
  const cancelTimeout = clock.after(action.timeoutMs, () => cutOff.abort('timeout'));
  const onStop = () => cutOff.abort('stop');
  context.signal.addEventListener('abort', onStop, { once: true });
  const startedAtMs = clock.monotonicMs();
  try {
    await Promise.race([
      ended,
      new Promise<void>((resolve) => cutOff.signal.addEventListener('abort', () => resolve(), { once: true })),
    ]);
    const cut: unknown = cutOff.signal.aborted ? cutOff.signal.reason : undefined;
    const graceMs = cut === 'stop' ? SHUTDOWN_GRACE_MS : GRACE_MS;
    const leftovers = child.pid === undefined ? 0 : await endFamily({ group: child.pid, mark }, clock, graceMs);
    const end = await ended;
    // Wait for output that is still in the pipes, but not indefinitely, because a process that could not be killed may
    // keep the pipes open.
    await Promise.race([closed, clock.sleep(PIPES_MS)]);
    child.stdout.destroy();
    child.stderr.destroy();
    const ends = [output.endText(), errors.endText()].filter((text) => text !== '').join('\n');
    parts.outputs?.add(context.event.id, context.reaction, ends);
    const durationMs = Math.round(clock.monotonicMs() - startedAtMs);
    const written = { stdout: output.text() || undefined, stderr: errors.text() || undefined };
    if (!(end instanceof Error)) logEnd(action, context, { end, cut, leftovers, durationMs, written }, parts);
    return resultOf(end, cut, action);
  } finally {
    cancelTimeout();
    context.signal.removeEventListener('abort', onStop);
  }
}

function startCommand({ command, workingFolder }: RunAction, env: NodeJS.ProcessEnv): ChildProcess | Error {
  const [file, ...args] = command;
  const cwd = workingFolder === undefined ? {} : { cwd: workingFolder };
  try {
    return spawn(file, args, { shell: false, detached: true, stdio: ['pipe', 'pipe', 'pipe'], env, ...cwd });
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

interface CommandEnd {
  end: ProgramEnd;
  /** Set to `timeout` or `stop` if the agent terminated the command. */
  cut: unknown;
  leftovers: number;
  durationMs: number;
  written: { stdout: string | undefined; stderr: string | undefined };
}

function logEnd(
  { command }: RunAction,
  { reaction, event: { id: inboxId, digest } }: ActionContext,
  { end, cut, leftovers, durationMs, written }: CommandEnd,
  { logger }: Pick<ActionParts, 'logger'>,
): void {
  const hasFailed = end.code !== 0 || cut !== undefined;
  logger.info(
    {
      event: 'reaction.command',
      reaction,
      inboxId,
      digest,
      command: command[0],
      exit: end.code,
      signal: end.signal,
      cut,
      leftovers: cut === undefined ? leftovers : undefined,
      durationMs,
      ...(hasFailed ? written : {}),
    },
    'reaction command exited',
  );
  // The output may contain personal names from the event, so it is logged at debug level unless the command failed.
  if (hasFailed || (!written.stdout && !written.stderr)) return;
  logger.debug({ event: 'reaction.output', reaction, inboxId, digest, ...written }, 'reaction command output');
}

function resultOf(end: ProgramEnd | Error, cut: unknown, action: RunAction): ActionResult {
  if (end instanceof Error) return { outcome: 'failed', detail: describeStart(end, action) };
  // Applies even to exit code 0, because a command that handles SIGTERM has not completed its work.
  if (cut === 'stop') return { outcome: 'interrupted' };
  if (cut === 'timeout') {
    return { outcome: 'failed', detail: `timed out after ${action.timeoutMs} ms`, timedOut: true };
  }
  if (end.code === 0) return { outcome: 'done', detail: 'exit 0' };
  return { outcome: 'failed', detail: end.signal === null ? `exit ${end.code}` : `terminated by ${end.signal}` };
}

function describeStart(error: Error, { command, workingFolder }: RunAction): string {
  const folder = workingFolder === undefined ? '' : ` or folder ${workingFolder}`;
  switch (codeOf(error)) {
    case 'ENOENT':
      return `program ${command[0]}${folder} not found`;
    case 'EACCES':
      return `${command[0]} is not executable`;
    default:
      return messageOf(error);
  }
}

/** Environment variables and their paths in the payload. The first path that exists is used. */
const VARIABLES: readonly (readonly [string, string])[] = [
  ['TAGFERRY_OCCURRED_AT', 'occurred_at'],
  ['TAGFERRY_OCCURRED_AT', 'occured_at'],
  ['TAGFERRY_NODE_ID', 'content.node.id'],
  ['TAGFERRY_KEY', 'content.data.key'],
  ['TAGFERRY_VALUE', 'content.data.value'],
  ['TAGFERRY_UNIT', 'content.data.unit.code'],
  ['TAGFERRY_VALUE_TIMESTAMP', 'content.data.timestamp'],
  ['TAGFERRY_THRESHOLD_TYPE', 'content.threshold.type'],
  ['TAGFERRY_THRESHOLD_NAME', 'content.threshold.name'],
  ['TAGFERRY_THRESHOLD_VALUE', 'content.threshold.value'],
];

/**
 * Returns the environment of a command: variables that programs may inherit, the main fields of the event, and the
 * instance marker.
 */
export function commandEnvironment(
  inherited: NodeJS.ProcessEnv,
  { reaction, event }: Pick<ActionContext, 'reaction' | 'event'>,
  mark: string,
): Record<string, string> {
  const environment = programEnvironment(inherited, mark);
  const set = (name: string, value: unknown) => {
    if (typeof value === 'object' || value === undefined || name in environment) return;
    // `execve` does not accept NUL characters.
    environment[name] = String(value).replaceAll('\0', '').slice(0, MAX_VARIABLE);
  };
  set('TAGFERRY_REACTION', reaction);
  set('TAGFERRY_EVENT_ID', event.id);
  set('TAGFERRY_EVENT_TYPE', event.eventType);
  set('TAGFERRY_ASSET_ID', event.assets[0]);
  set('TAGFERRY_INSTRUMENTATION_ID', event.instrumentations[0]);
  set('TAGFERRY_TAG', event.tag);
  for (const [name, path] of VARIABLES) set(name, valuesAt(event.envelope, path)[0]);
  return environment;
}
