import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import { programEnvironment } from './environment.ts';
import { endFamily } from './family.ts';
import { killBeforeAgent } from './memory-priority.ts';
import { type ProgramEnd, untilEnded } from './program-end.ts';

export interface ProgramOptions {
  /** Program and arguments, executed without a shell. */
  command: readonly [string, ...string[]];
  /**
   * Identifies the state folder. Programs left running by a killed agent are terminated by the next agent with the same
   * folder.
   */
  instance: string;
  clock: Clock;
  /**
   * Reads the output of the program. Resolves when all output has been processed. Unread output remains in the pipe.
   */
  readOutput(output: Readable): Promise<void>;
  /**
   * Writes to standard input after each start; if unset, there is no standard input. Never throws, because the
   * program may have exited.
   */
  writeInput?(input: Writable): void;
  /** Whether a program that exits with status 0 is still running while a child of it can write to its output. */
  continuesInChild?: boolean;
  /** Receives a line of standard error, truncated to `MAX_LINE` characters. */
  onErrorLine(line: string): void;
  /** Environment from which the variables are selected. */
  environment?: NodeJS.ProcessEnv;
  /** Additional environment variables. */
  variables?: Readonly<Record<string, string>>;
}

export interface RunEnd {
  /** Description, for example `exited with status 1`. */
  how: string;
  /** The program exited by itself with status 0. */
  isSuccess: boolean;
  /** The program exited by itself, so it has written all of its output. */
  hasExited: boolean;
}

const GRACE_MS = 2_000;
/** Time to read the remaining output of an exited program, unless its consumer is waiting for a disk. */
const FINAL_OUTPUT_MS = 2_000;
const MAX_LINE = 500;

let starts = 0;

/**
 * Runs a program once, in its own process group and without the agent's secrets. Resolves when it and its children have
 * exited. `stop` terminates the program; so does `abort`, whose reason then describes how it ended. `started` is called
 * when the process exists.
 */
export async function runProgram(
  options: ProgramOptions,
  stop: AbortSignal,
  abort: AbortSignal,
  started: () => void,
): Promise<RunEnd> {
  const { command, clock, readOutput, writeInput, onErrorLine, instance } = options;
  const [file] = command;
  const mark = `${instance}:${process.pid}:${++starts}`;
  const child = spawnProgram(options, mark);
  if (child instanceof Error) return endOf(child, file);
  killBeforeAgent(child.pid);
  const ended = untilEnded(child);
  if (child.pid === undefined || !child.stdout || !child.stderr) return endOf(await ended, file);
  started();
  const { stdout, stderr } = child;
  child.stdin?.on('error', () => {});
  if (child.stdin) writeInput?.(child.stdin);
  const outputRead = readOutput(stdout);
  void eachLine(stderr, onErrorLine).catch(() => {});
  const signal = AbortSignal.any([stop, abort]);
  const { promise: stopped, resolve: onStop } = Promise.withResolvers<unknown>();
  signal.addEventListener('abort', onStop, { once: true });
  if (signal.aborted) onStop(undefined);
  // If the reader stops, the program is no longer needed and is terminated as well.
  const isSuccessful = (end: ProgramEnd | Error) => endOf(end, file).isSuccess;
  const finished = ended.then((end) => (options.continuesInChild && isSuccessful(end) ? outputRead : undefined));
  await Promise.race([
    finished.catch(() => {}),
    stopped,
    outputRead.catch(() => {}).then(() => clock.sleep(GRACE_MS, stop).catch(() => {})),
  ]);
  signal.removeEventListener('abort', onStop);
  await endFamily({ group: child.pid, mark }, clock, GRACE_MS);
  const end = await ended;
  const result = abort.aborted ? { how: String(abort.reason), isSuccess: false, hasExited: false } : endOf(end, file);
  await Promise.race([outputRead.catch(() => {}), clock.sleep(FINAL_OUTPUT_MS)]);
  stdout.destroy();
  stderr.destroy();
  child.stdin?.destroy();
  return result;
}

function spawnProgram(options: ProgramOptions, mark: string): ChildProcess | Error {
  const { command, writeInput, environment = process.env, variables } = options;
  const [file, ...args] = command;
  try {
    const env = { ...programEnvironment(environment, mark), ...variables };
    return spawn(file, args, {
      shell: false,
      detached: true,
      stdio: [writeInput ? 'pipe' : 'ignore', 'pipe', 'pipe'],
      env,
    });
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function endOf(end: ProgramEnd | Error, file: string): RunEnd {
  if (end instanceof Error) return { how: startProblem(end, file), isSuccess: false, hasExited: false };
  const hasExited = end.signal === null;
  const how = hasExited ? `exited with status ${end.code}` : `terminated by ${end.signal}`;
  return { how, isSuccess: end.code === 0, hasExited };
}

/** Reasons why a program cannot be started, and corrections. */
const START_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist, or the interpreter in its first line does not exist: install it, or correct the path',
  ENOTDIR: 'does not exist, because part of its path is not a folder: correct the path',
  ELOOP: 'is a link that refers to itself: correct the link',
  EACCES: 'is not executable by the user of the service: run chmod 755, and check the folders of its path',
  EPERM: 'must not be executed by the service: check the restrictions of the unit and of the file system',
  ENOEXEC: 'is not a program of this machine: a script must begin with a line such as #!/bin/sh',
  ETXTBSY: 'is open for writing: replace a program by renaming a new file',
  E2BIG: 'has too many or too long arguments: shorten them',
  EAGAIN: 'cannot be started, because the service has too many processes: raise TasksMax in its unit',
  ENOMEM: 'cannot be started, because the service has too little memory: raise MemoryMax in its unit',
  EMFILE: 'cannot be started, because the service has too many open files: raise LimitNOFILE in its unit',
};

/** Describes in one sentence why a program cannot be started and what to do. */
export function startProblem(error: Error, file: string): string {
  const code = codeOf(error) ?? messageOf(error);
  const known = START_PROBLEMS[code];
  if (known !== undefined) return `${file} ${known}`;
  return `${file} cannot be started (${code}): run it as the user of the service to find the cause`;
}

/** Reads lines and truncates each to `MAX_LINE` characters to limit memory use. */
async function eachLine(input: Readable, onLine: (line: string) => void): Promise<void> {
  input.setEncoding('utf8');
  let begun = '';
  for await (const piece of input as AsyncIterable<string>) {
    const [first, ...more] = piece.split('\n');
    begun = (begun + first).slice(0, MAX_LINE);
    for (const line of more) {
      if (begun.trim() !== '') onLine(begun);
      begun = line.slice(0, MAX_LINE);
    }
  }
  if (begun.trim() !== '') onLine(begun);
}
