import { execFile } from 'node:child_process';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import type { AgentProcess } from './agent-process.ts';

export interface VerbOutcome {
  status: number;
  stdout: string;
  stderr: string;
}

/** Runs a `tagferry` command with a configuration folder, but without the agent's environment. */
export function runVerb(agent: Pick<AgentProcess, 'config'>, ...args: string[]): Promise<VerbOutcome> {
  return runVerbIn([], agent, ...args);
}

/** Runs a command like `runVerb`, with a program before it that sets up its surroundings. */
export function runVerbIn(
  surroundings: readonly string[],
  { config }: Pick<AgentProcess, 'config'>,
  ...args: string[]
): Promise<VerbOutcome> {
  const [program, ...before] = [...surroundings, process.execPath];
  const isOwn = ([key]: [string, unknown]) => key.startsWith('NODE_') || key.startsWith('TAGFERRY');
  const clean = Object.fromEntries(Object.entries(process.env).filter((entry) => !isOwn(entry)));
  return new Promise((resolve) => {
    execFile(
      program!,
      [...before, MAIN, ...args, '--config', config],
      { cwd: config, env: { ...clean, ...COMPILED_CODE, NO_COLOR: '1' }, maxBuffer: 2 ** 25 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        resolve({ status: typeof code === 'number' ? code : -1, stdout, stderr });
      },
    );
  });
}
