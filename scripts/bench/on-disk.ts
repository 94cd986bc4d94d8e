/**
 * Runs the agent with default settings and an unavailable platform, for benchmarks that end when all values are on
 * disk.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../test/e2e/harness/agent-process.ts';
import { memoryOf, processUsage } from './measure.ts';

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

export async function until(holds: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  while (!(await holds())) await pause(everyMs);
}

/** Starts a platform that refuses connections. */
export async function awayPlatform(): Promise<Sandbox> {
  const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  await sandbox.goOffline();
  return sandbox;
}

export function agentWith(sandbox: Sandbox, tags: string): AgentProcess {
  return new AgentProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '1s', POST_INTERVAL: '10s' } });
}

export const onDisk = (agent: AgentProcess) => agent.metric('tagferry_values_ingested_total');

/** Returns a process and its descendants. */
export function family(pid: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        return [[Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])] as const];
      } catch {
        return [];
      }
    });
  const found = [pid];
  for (const one of found) found.push(...parents.filter(([, parent]) => parent === one).map(([child]) => child));
  return found;
}

/** Returns these processes' CPU time in seconds. */
export function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + processUsage(pid).cpuSeconds, 0);
}

/** Returns these processes' proportional share of memory, in MB. */
export function heldMb(pids: readonly number[]): number {
  return pids.filter((pid) => existsSync(`/proc/${pid}`)).reduce((sum, pid) => sum + memoryOf(pid).pss, 0);
}
