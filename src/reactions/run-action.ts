import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { endFamily, type Family } from '../base/programs/family.ts';
import { killBeforeAgent } from '../base/programs/memory-priority.ts';
import { type ProgramEnd, untilEnded } from '../base/programs/program-end.ts';
import type { Action } from '../config/reactions.ts';
import type { ActionContext, ActionResult } from './action.ts';
import { BoundedOutput } from './bounded-output.ts';
import { commandEnvironment } from './command-environment.ts';
import type { RecentOutputs } from './recent-outputs.ts';

export interface RunOptions {
  clock: Clock;
  logger: Logger;
  /** Same for every daemon of one state folder: marks its commands, so that the next one finds what a kill -9 left. */
  instance: string;
  /** For people who look. */
  outputs?: RecentOutputs;
  /** What the command's environment is picked from. */
  environment?: NodeJS.ProcessEnv;
}

type RunAction = Extract<Action, { kind: 'run' }>;

/** Between SIGTERM and SIGKILL: enough to close a connection, short beside any timeout. */
const GRACE_MS = 2_000;
/** At a stop there is less: systemd kills what is left. */
const STOP_GRACE_MS = 500;
const PIPES_MS = 500;
const MAX_OUTPUT_BYTES = 2_000;

let runs = 0;

/**
 * Runs a command: no shell, the event's JSON on standard input, a process group of its own. Over means over: when the command
 * has ended, or its time is up, whatever it started is ended as well.
 */
export async function runCommand(
  action: RunAction,
  context: ActionContext,
  options: RunOptions,
): Promise<ActionResult> {
  const { clock, logger } = options;
  if (context.signal.aborted) return { outcome: 'interrupted' };
  const mark = `${options.instance}:${process.pid}:${++runs}`;
  const started = startCommand(action, context, options, mark);
  if (started instanceof Error) return { outcome: 'failed', detail: describeStart(started, action) };
  const child = started;
  killBeforeAgent(child.pid);
  const ended = untilEnded(child);
  const closed = new Promise((resolve) => child.once('close', resolve));
  // Out of file descriptors, Node gives a child without pipes, and its error a tick later.
  if (!child.stdin || !child.stdout || !child.stderr) return judge(await ended, undefined, action);
  const output = new BoundedOutput(child.stdout, MAX_OUTPUT_BYTES, clock);
  const errors = new BoundedOutput(child.stderr, MAX_OUTPUT_BYTES, clock);
  // Nothing reads standard input of most commands: EPIPE says so and is no fault.
  child.stdin.on('error', () => {});
  child.stdin.end(context.event.payload);

  const over = new AbortController();
  const timer = clock.after(action.timeoutMs, () => over.abort('timeout'));
  const onStop = () => over.abort('stop');
  context.signal.addEventListener('abort', onStop, { once: true });
  const startedAtMs = clock.monotonicMs();
  try {
    await Promise.race([ended, untilAborted(over.signal)]);
    const cut: unknown = over.signal.aborted ? over.signal.reason : undefined;
    const leftovers =
      child.pid === undefined
        ? 0
        : await endFamily(familyOf(child.pid, mark), clock, cut === 'stop' ? STOP_GRACE_MS : GRACE_MS);
    const end = await ended;
    // The last of its output is still in the pipes; somebody out of reach may hold them open.
    await Promise.race([closed, clock.sleep(PIPES_MS)]);
    child.stdout.destroy();
    child.stderr.destroy();
    const ends = [output.endText(), errors.endText()].filter((text) => text !== '').join('\n');
    options.outputs?.add(context.event.id, context.reaction, ends);
    if (!(end instanceof Error)) {
      const about = { reaction: context.reaction, inboxId: context.event.id, digest: context.event.digest };
      const hasFailed = end.code !== 0 || cut !== undefined;
      const written = { stdout: output.text() || undefined, stderr: errors.text() || undefined };
      logger.info(
        {
          event: 'reaction.command',
          ...about,
          command: action.command[0],
          exit: end.code,
          signal: end.signal,
          cut,
          leftovers: cut === undefined ? leftovers : undefined,
          durationMs: Math.round(clock.monotonicMs() - startedAtMs),
          // Many programs complain on standard output.
          ...(hasFailed ? written : {}),
        },
        'a command of a reaction ended',
      );
      // It may repeat the event, and with it names of people: of what went well it is for whoever asks for it.
      if (!hasFailed && (written.stdout || written.stderr)) {
        logger.debug({ event: 'reaction.output', ...about, ...written }, 'what a command of a reaction wrote');
      }
    }
    return judge(end, cut, action);
  } finally {
    timer();
    context.signal.removeEventListener('abort', onStop);
  }
}

function familyOf(pid: number, mark: string): Family {
  return { group: pid, mark };
}

function startCommand(
  action: RunAction,
  context: ActionContext,
  options: RunOptions,
  mark: string,
): ChildProcess | Error {
  const [file, ...args] = action.command;
  try {
    return spawn(file, args, {
      shell: false,
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: commandEnvironment(options.environment ?? process.env, context.reaction, context.event, mark),
      ...(action.workingFolder === undefined ? {} : { cwd: action.workingFolder }),
    });
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

function judge(end: ProgramEnd | Error, cut: unknown, action: RunAction): ActionResult {
  if (end instanceof Error) return { outcome: 'failed', detail: describeStart(end, action) };
  // Even with exit 0: a command that tidies up on SIGTERM ends well without having done its work.
  if (cut === 'stop') return { outcome: 'interrupted' };
  if (cut === 'timeout') {
    return { outcome: 'failed', detail: `ended after its timeout of ${action.timeoutMs} ms`, timedOut: true };
  }
  if (end.code === 0) return { outcome: 'done', detail: 'exit 0' };
  return { outcome: 'failed', detail: end.signal === null ? `exit ${end.code}` : `ended by ${end.signal}` };
}

function describeStart(error: Error, action: RunAction): string {
  const where = action.workingFolder === undefined ? '' : ` or the folder ${action.workingFolder}`;
  switch (codeOf(error)) {
    case 'ENOENT':
      return `there is no ${action.command[0]}${where}`;
    case 'EACCES':
      return `${action.command[0]} may not be executed`;
    default:
      return messageOf(error);
  }
}
