import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { MAIN } from '../built-agent.ts';
import { COMPILED_CODE } from '../compiled-code.ts';

const ROOT = join(import.meta.dirname, '../..');

export interface VerbOutcome {
  status: number;
  stdout: string;
  stderr: string;
}

/** Runs `tagferry` as an operator would: a process of its own, in a shell that has none of the daemon's environment. */
export function runVerb(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  patienceMs = 90_000,
): Promise<VerbOutcome> {
  const clean = Object.fromEntries(
    Object.entries(process.env).filter(([key]) => !key.startsWith('NODE_') && !key.startsWith('TAGFERRY')),
  );
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [MAIN, ...args],
      {
        cwd: ROOT,
        env: { ...clean, ...COMPILED_CODE, NO_COLOR: '1', ...environment },
        timeout: patienceMs,
        maxBuffer: 32 * 1024 * 1024,
      },
      (error, stdout, stderr) => {
        const code = (error as { code?: number | string } | null)?.code;
        resolve({ status: error === null ? 0 : typeof code === 'number' ? code : -1, stdout, stderr });
      },
    );
  });
}
