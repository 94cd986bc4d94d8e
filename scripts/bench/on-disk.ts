/** The daemon as each of these benches runs it: as shipped but for its sockets, the platform away, until all is on disk. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../test/process/agent-process.ts';

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

export async function until(holds: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  while (!(await holds())) await pause(everyMs);
}

/** A platform that is away. */
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

/** A process and all that it started. */
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

/** Seconds of CPU of these processes until now. */
export function cpuSeconds(pids: readonly number[]): number {
  const ticks = pids.map((pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((sum, one) => sum + one, 0) / 100;
}

/** Megabytes that these processes hold, what they share divided among those who share it. */
export function heldMb(pids: readonly number[]): number {
  const kilobytes = pids.map((pid) => {
    const file = `/proc/${pid}/smaps_rollup`;
    return existsSync(file) ? Number(/^Pss:\s+(\d+)/m.exec(readFileSync(file, 'utf8'))?.[1] ?? 0) : 0;
  });
  return kilobytes.reduce((sum, one) => sum + one, 0) / 1024;
}
