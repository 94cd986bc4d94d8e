import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { MAIN } from '../../built-agent.ts';
import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';

const ROOT = join(import.meta.dirname, '../../..');

export interface VerbOutcome {
  status: number;
  stdout: string;
  stderr: string;
}

/** Runs `tagferry` in a separate process, without the agent's environment. */
export function runVerb(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  timeoutMs = 90_000,
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
        timeout: timeoutMs,
        maxBuffer: 32 * 1024 * 1024,
      },
      (error, stdout, stderr) => {
        const code = (error as { code?: number | string } | null)?.code;
        resolve({ status: error === null ? 0 : typeof code === 'number' ? code : -1, stdout, stderr });
      },
    );
  });
}

/** A line of `tagferry doctor --json`. */
export interface Line {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  next: string;
}

/** Runs `tagferry doctor` on an agent's configuration, in this environment. */
export async function runDoctor(
  agent: AgentProcess,
  environment: NodeJS.ProcessEnv = {},
): Promise<{ status: number; ok: boolean; checks: Line[] }> {
  const { status, stdout } = await runVerb(['doctor', '--json', '--config', agent.config], environment);
  return { status, ...(JSON.parse(stdout) as { ok: boolean; checks: Line[] }) };
}

export const linesOf = (checks: readonly Line[], check: string) => checks.filter((line) => line.check === check);
