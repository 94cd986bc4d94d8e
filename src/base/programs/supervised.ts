import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import { programEnvironment } from './environment.ts';
import { endFamily, endOrphans } from './family.ts';
import { killBeforeAgent } from './memory-priority.ts';
import { type ProgramEnd, untilEnded } from './program-end.ts';

export interface SupervisedOptions {
  /** Program and arguments; no shell reads them. */
  command: readonly [string, ...string[]];
  /** The same for every daemon of one state folder: what one that was killed left running is ended by the next. */
  instance: string;
  clock: Clock;
  /** Takes what the program prints until its end; resolves when all of it is dealt with. What it does not read stays in the pipe. */
  take(output: Readable): Promise<void>;
  /** What is said to it on its standard input, from each start on; left out, it has none. Never throws: who has ended does not listen. */
  tell?(input: Writable): void;
  /** A line of its standard error, cut at `MAX_LINE` characters. */
  said(line: string): void;
  /** How it ended, in words, and when it is started again. */
  ended(how: string, againInMs: number): void;
  /** What its environment is picked from. */
  environment?: NodeJS.ProcessEnv;
}

const GRACE_MS = 2_000;
/** What a program printed last is still read after its end, unless whoever takes it waits for a disk. */
const LAST_WORDS_MS = 2_000;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** One that ran so long was sound: the next pause is the first again. */
const SOUND_MS = 60_000;
const MAX_LINE = 500;

let starts = 0;

/**
 * A program that runs as long as somebody wants it to: started without a shell, in a process group of its own, without the
 * daemon's secrets; started again with a back-off of 1 s, doubling to 60 s, however it ended; ended with all that it started.
 */
export class SupervisedProgram {
  readonly #options: SupervisedOptions;
  readonly #stopping = new AbortController();
  #life = new AbortController();
  #running: Promise<void> | undefined;
  /** Monotonic, of the start of the one that runs now. */
  startedMs: number | undefined;
  /** Ends that nobody asked for. */
  ends = 0;

  constructor(options: SupervisedOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Resolves when the program and all it started is gone. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** Ends the program, which is started again as after any other end. `why`: how it ended, for `ended`. */
  restart(why: string): void {
    this.#life.abort(why);
  }

  async #run(): Promise<void> {
    const { clock, instance, ended } = this.#options;
    const { signal } = this.#stopping;
    await endOrphans(instance);
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      const startedMs = clock.monotonicMs();
      const how = await this.#once(signal);
      this.startedMs = undefined;
      if (signal.aborted) return;
      this.ends++;
      if (clock.monotonicMs() - startedMs >= SOUND_MS) pauseMs = FIRST_PAUSE_MS;
      ended(how, pauseMs);
      await clock.sleep(pauseMs, signal).catch(() => {});
    }
  }

  /** One life; gives how it ended. */
  async #once(signal: AbortSignal): Promise<string> {
    const { clock, take, tell, said, instance } = this.#options;
    const mark = `${instance}:${process.pid}:${++starts}`;
    const child = this.#spawn(mark);
    if (child instanceof Error) return this.#describe(child);
    killBeforeAgent(child.pid);
    const ended = untilEnded(child);
    if (child.pid === undefined || !child.stdout || !child.stderr) return this.#how(await ended);
    this.startedMs = clock.monotonicMs();
    const { stdout, stderr } = child;
    child.stdin?.on('error', () => {});
    if (child.stdin) tell?.(child.stdin);
    const taken = take(stdout);
    void eachLine(stderr, said).catch(() => {});
    this.#life = new AbortController();
    const life = this.#life.signal;
    const { promise: stopped, resolve: stop } = Promise.withResolvers<unknown>();
    for (const one of [signal, life]) one.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop(undefined);
    // The reader may stop reading. A program without a reader is useless and is ended as well.
    await Promise.race([
      ended,
      stopped,
      taken.catch(() => {}).then(() => clock.sleep(GRACE_MS, signal).catch(() => {})),
    ]);
    signal.removeEventListener('abort', stop);
    await endFamily({ group: child.pid, mark }, clock, GRACE_MS);
    const end = await ended;
    const how = life.aborted ? String(life.reason) : this.#how(end);
    await Promise.race([taken.catch(() => {}), clock.sleep(LAST_WORDS_MS)]);
    stdout.destroy();
    stderr.destroy();
    child.stdin?.destroy();
    return how;
  }

  #spawn(mark: string): ChildProcess | Error {
    const { command, tell, environment = process.env } = this.#options;
    const [file, ...args] = command;
    try {
      const env = programEnvironment(environment, mark);
      return spawn(file, args, {
        shell: false,
        detached: true,
        stdio: [tell ? 'pipe' : 'ignore', 'pipe', 'pipe'],
        env,
      });
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  #how(end: ProgramEnd | Error): string {
    if (end instanceof Error) return this.#describe(end);
    return end.signal === null ? `it ended with exit ${end.code}` : `it was ended by ${end.signal}`;
  }

  #describe(error: Error): string {
    const [file] = this.#options.command;
    switch (codeOf(error)) {
      case 'ENOENT':
        return `there is no ${file}, or not the program that its first line names`;
      case 'EACCES':
        return `${file} may not be executed`;
      default:
        return messageOf(error);
    }
  }
}

/** The lines of a text, what is beyond `MAX_LINE` characters of each left out, so that no line gathers in memory. */
async function eachLine(input: Readable, tell: (line: string) => void): Promise<void> {
  input.setEncoding('utf8');
  let begun = '';
  for await (const piece of input as AsyncIterable<string>) {
    const [first, ...more] = piece.split('\n');
    begun = (begun + first).slice(0, MAX_LINE);
    for (const line of more) {
      if (begun.trim() !== '') tell(begun);
      begun = line.slice(0, MAX_LINE);
    }
  }
  if (begun.trim() !== '') tell(begun);
}
