import type { AgentProcess } from '../process/agent-process.ts';
import { runVerb } from './verb-run.ts';

/** A line of `tagferry doctor --json`. */
export interface Line {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  next: string;
}

/** Asks the doctor about an agent's configuration, as an operator whose shell has this environment. */
export async function consult(
  agent: AgentProcess,
  environment: NodeJS.ProcessEnv = {},
): Promise<{ status: number; ok: boolean; checks: Line[] }> {
  const { status, stdout } = await runVerb(['doctor', '--json', '--config', agent.config], environment);
  return { status, ...(JSON.parse(stdout) as { ok: boolean; checks: Line[] }) };
}

export const linesOf = (checks: readonly Line[], check: string) => checks.filter((line) => line.check === check);
