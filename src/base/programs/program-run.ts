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
  /** Receives a line of standard error, truncated to `MAX_LINE` characters. */
  onErrorLine(line: string): void;
  /** Environment from which the variables are selected. */
  environment?: NodeJS.ProcessEnv;
}

export interface RunEnd {
  /** Description, for example `exited with status 1`. */
  how: string;
  /** The program exited by itself with status 0. */
  isSuccess: boolean;
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
  await Promise.race([
    ended,
    stopped,
    outputRead.catch(() => {}).then(() => clock.sleep(GRACE_MS, stop).catch(() => {})),
  ]);
  signal.removeEventListener('abort', onStop);
  await endFamily({ group: child.pid, mark }, clock, GRACE_MS);
  const end = await ended;
  const result = abort.aborted ? { how: String(abort.reason), isSuccess: false } : endOf(end, file);
  await Promise.race([outputRead.catch(() => {}), clock.sleep(FINAL_OUTPUT_MS)]);
  stdout.destroy();
  stderr.destroy();
  child.stdin?.destroy();
  return result;
}

function spawnProgram(options: ProgramOptions, mark: string): ChildProcess | Error {
  const { command, writeInput, environment = process.env } = options;
  const [file, ...args] = command;
  try {
    const env = programEnvironment(environment, mark);
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
  if (end instanceof Error) return { how: describe(end, file), isSuccess: false };
  const how = end.signal === null ? `exited with status ${end.code}` : `terminated by ${end.signal}`;
  return { how, isSuccess: end.code === 0 };
}

function describe(error: Error, file: string): string {
  switch (codeOf(error)) {
    case 'ENOENT':
      return `${file} does not exist, or the interpreter in its first line does not exist`;
    case 'EACCES':
      return `${file} is not executable`;
    default:
      return messageOf(error);
  }
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
