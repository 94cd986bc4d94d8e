/**
 * Reads the configuration in a thread of its own: files may be large or hostile, and values come in, the watchdog is fed and
 * the platform is answered meanwhile. What a reading may take of time and memory has a bound: beyond it the files are
 * refused, as for any other problem, and the old configuration stays in force.
 */
import { Worker } from 'node:worker_threads';
import type { Clock } from '../base/clock.ts';
import { ConfigurationError, codeOf, messageOf } from '../base/errors.ts';
import { memoryLimitBytes } from '../base/memory-limit.ts';
import type { LoadedConfiguration } from '../config/configuration.ts';
import type { ConfigurationIdentity } from '../config/configuration-digest.ts';

export interface FilesToRead {
  directory: string;
  environment: NodeJS.ProcessEnv;
  /** Read for their identity, valid or not. */
  identityOnly?: true;
}

export type ReadAnswer =
  | { configuration: LoadedConfiguration }
  | { identity: ConfigurationIdentity }
  | { problems: readonly string[] }
  /** A fault of ours. */
  | { failure: string };

const MAX_MS = 60_000;
/** `status` waits for it. */
const MAX_IDENTITY_MS = 5_000;
const MAX_REPORTED = 100;
/** Ten thousand tags take some 40 MB. */
const MEMORY_SHARE = 1 / 4;
const MIN_MB = 32;
const MAX_MB = 512;

/** Throws `ConfigurationError` with every problem of every file. */
export async function readConfigurationAside(
  { directory, environment }: FilesToRead,
  clock: Clock,
  maxMs = MAX_MS,
): Promise<LoadedConfiguration> {
  const answer = await readInThread({ directory, environment: { ...environment } }, clock, maxMs);
  if ('configuration' in answer) return answer.configuration;
  if ('problems' in answer) throw new ConfigurationError(firstOf(answer.problems));
  throw new Error('failure' in answer ? answer.failure : 'no configuration was read');
}

/** What identifies the files on disk, valid or not. Rejects if they cannot be read within the bounds. */
export async function readIdentityAside(
  { directory, environment }: FilesToRead,
  clock: Clock,
): Promise<ConfigurationIdentity> {
  const files = { directory, environment: { ...environment }, identityOnly: true as const };
  const answer = await readInThread(files, clock, MAX_IDENTITY_MS);
  if ('identity' in answer) return answer.identity;
  throw new Error('the configuration files could not be read');
}

/** They go into one line of the log. */
function firstOf(problems: readonly string[]): string[] {
  const more = problems.length - MAX_REPORTED;
  return more > 0
    ? [...problems.slice(0, MAX_REPORTED), `and ${more} more: tagferry check shows them all`]
    : [...problems];
}

function readInThread(files: FilesToRead, clock: Clock, maxMs: number): Promise<ReadAnswer> {
  // The source runs as it is, and built: the thread's file has the ending of this one.
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const worker = new Worker(new URL(`./configuration-thread.${ending}`, import.meta.url), {
    workerData: files,
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: memoryMb(), maxYoungGenerationSizeMb: 4 },
  });
  return new Promise((resolve) => {
    const refuse = (problem: string) => resolve({ problems: [`${files.directory}: ${problem}`] });
    const cancel = clock.after(maxMs, () => {
      refuse(`reading it took longer than ${maxMs / 1000} s, check that these are the right files`);
      void worker.terminate();
    });
    worker.once('message', resolve);
    worker.once('error', (error: unknown) => {
      if (codeOf(error) === 'ERR_WORKER_OUT_OF_MEMORY') {
        refuse('reading it takes more memory than there is, write smaller files');
      } else resolve({ failure: messageOf(error) });
    });
    worker.once('exit', () => {
      cancel();
      resolve({ failure: 'the thread that reads the configuration ended without an answer' });
    });
  });
}

function memoryMb(): number {
  return Math.round(Math.min(MAX_MB, Math.max(MIN_MB, (memoryLimitBytes() * MEMORY_SHARE) / 2 ** 20)));
}
