/**
 * Reads the configuration in a separate thread, because large or malicious files must not block values, the watchdog or
 * responses. Time and memory are limited. If a limit is exceeded, the files are rejected and the previous configuration
 * stays in use.
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
  /** Reads only the identity of the files, even if they are invalid. */
  identityOnly?: true;
}

export type ReadAnswer =
  | { configuration: LoadedConfiguration }
  | { identity: ConfigurationIdentity }
  | { problems: readonly string[] }
  /** Bug in the agent. */
  | { failure: string };

const MAX_MS = 60_000;
/** Short, because `status` waits for the result. */
const MAX_IDENTITY_MS = 5_000;
const MAX_REPORTED = 100;
/** Share of the memory limit. Ten thousand tags require about 40 MB. */
const MEMORY_SHARE = 1 / 4;
const MIN_MB = 32;
const MAX_MB = 512;

/** Throws `ConfigurationError` with all problems of all files. */
export async function readConfigurationAside(
  { directory, environment }: FilesToRead,
  clock: Clock,
  maxMs = MAX_MS,
): Promise<LoadedConfiguration> {
  const answer = await readInThread({ directory, environment: { ...environment } }, clock, maxMs);
  if ('configuration' in answer) return answer.configuration;
  if ('problems' in answer) throw new ConfigurationError(firstOf(answer.problems));
  throw new Error('failure' in answer ? answer.failure : 'received no configuration');
}

/** Returns the identity of the files on disk, even if they are invalid. Rejects if a limit is exceeded. */
export async function readIdentityAside(
  { directory, environment }: FilesToRead,
  clock: Clock,
): Promise<ConfigurationIdentity> {
  const files = { directory, environment: { ...environment }, identityOnly: true as const };
  const answer = await readInThread(files, clock, MAX_IDENTITY_MS);
  if ('identity' in answer) return answer.identity;
  throw new Error('cannot read the configuration files');
}

/** Limits the number of problems, so that they fit in one log line. */
function firstOf(problems: readonly string[]): string[] {
  const more = problems.length - MAX_REPORTED;
  return more > 0
    ? [...problems.slice(0, MAX_REPORTED), `and ${more} more, run tagferry check to list all`]
    : [...problems];
}

function readInThread(files: FilesToRead, clock: Clock, maxMs: number): Promise<ReadAnswer> {
  // The agent runs from source or from the build, and the thread uses the same file extension.
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const worker = new Worker(new URL(`./configuration-thread.${ending}`, import.meta.url), {
    workerData: files,
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: memoryMb(), maxYoungGenerationSizeMb: 4 },
  });
  return new Promise((resolve) => {
    const refuse = (problem: string) => resolve({ problems: [`${files.directory}: ${problem}`] });
    const cancel = clock.after(maxMs, () => {
      refuse(`reading timed out after ${maxMs / 1000} s, check that these are the correct files`);
      void worker.terminate();
    });
    worker.once('message', resolve);
    worker.once('error', (error: unknown) => {
      if (codeOf(error) === 'ERR_WORKER_OUT_OF_MEMORY') {
        refuse('reading requires more memory than is available, use smaller files');
      } else resolve({ failure: messageOf(error) });
    });
    worker.once('exit', () => {
      cancel();
      resolve({ failure: 'the configuration thread exited without a result' });
    });
  });
}

function memoryMb(): number {
  return Math.round(Math.min(MAX_MB, Math.max(MIN_MB, (memoryLimitBytes() * MEMORY_SHARE) / 2 ** 20)));
}
