import { execFile } from 'node:child_process';

/** What a program printed; `undefined` where it is not there, failed or took too long. Never through a shell. */
export function outputOf(program: string, args: readonly string[]): Promise<string | undefined> {
  return new Promise((resolve) => {
    const options = { timeout: 10_000, maxBuffer: 8 * 1024 * 1024, env: { ...process.env, LC_ALL: 'C' } };
    execFile(program, args, options, (error, stdout) => resolve(error ? undefined : stdout));
  });
}
