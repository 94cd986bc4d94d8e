/**
 * Runs the agent with default settings and an unavailable platform, for benchmarks that end when all values are on
 * disk.
 */
import { existsSync } from 'node:fs';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../test/e2e/harness/agent-process.ts';
import { memoryOf } from './measure.ts';

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

/** Returns these processes' proportional share of memory, in MB. */
export function heldMb(pids: readonly number[]): number {
  return pids.filter((pid) => existsSync(`/proc/${pid}`)).reduce((sum, pid) => sum + memoryOf(pid).pss, 0);
}
