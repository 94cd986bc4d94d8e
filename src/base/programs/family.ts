import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '../clock.ts';
import { codeOf } from '../errors.ts';
import { MARK } from './environment.ts';

/**
 * All processes started by one command. Signals to the process group reach ordinary children. A child that started its
 * own session is found in /proc by the mark in its environment. A child that also cleared its environment can only be
 * terminated with the unit's cgroup.
 */
export interface Family {
  /** Process group, equal to the pid of the leader, which was started detached. */
  group: number;
  /** Mark in the environment. */
  mark: string;
}

/** Interval between checks. Each check reads the environment of all processes. */
const POLL_MS = 50;
/** Number of searches. Repeated because a process may fork between the search and the signal. */
const SWEEPS = 8;

/** Sends a signal to all processes of the family. */
async function signalFamily(family: Family, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  send(-family.group, signal);
  for (const pid of await findMarked((mark) => mark === family.mark)) send(pid, signal);
}

/**
 * Terminates the remaining processes: SIGTERM, then SIGKILL after `graceMs`. Returns the number of processes found.
 * Only a process blocked in the kernel, for example by an unreachable NFS server, can remain.
 */
export async function endFamily(family: Family, clock: Clock, graceMs: number): Promise<number> {
  const found = await membersOf(family);
  if (found === 0) return 0;
  await signalFamily(family, 'SIGTERM');
  const deadline = clock.monotonicMs() + graceMs;
  while (clock.monotonicMs() < deadline) {
    if ((await membersOf(family)) === 0) return found;
    await clock.sleep(POLL_MS);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    await signalFamily(family, 'SIGKILL');
    await clock.sleep(POLL_MS);
    if ((await membersOf(family)) === 0) break;
  }
  return found;
}

/**
 * Terminates the commands of a killed agent with the same `instance`. Their reactions run again, and two copies of a
 * command must not operate the same device. Returns the number of processes found.
 */
export async function endOrphans(instance: string): Promise<number> {
  let found = 0;
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const pids = await findMarked((mark) => mark.startsWith(`${instance}:`));
    if (pids.length === 0) break;
    if (sweep === 0) found = pids.length;
    for (const pid of pids) send(pid, 'SIGKILL');
  }
  return found;
}

/** Sends a signal to a process or (negative) group, which may have exited. */
function send(pid: number, signal: 'SIGTERM' | 'SIGKILL' | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    // EPERM: the process exists but changed its user. Other members of the group received the signal.
    return codeOf(error) === 'EPERM';
  }
}

async function membersOf(family: Family): Promise<number> {
  const marked = await findMarked((mark) => mark === family.mark);
  // A zombie remains in the group until it is reaped. It has no environment and is not running.
  if (marked.length > 0) return marked.length;
  return (await groupIsAlive(family.group)) ? 1 : 0;
}

async function groupIsAlive(group: number): Promise<boolean> {
  if (!send(-group, 0)) return false;
  return (await readEach('stat')).some(({ text }) => {
    // Fields after the name in parentheses, which may contain any character: state, parent, group.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return Number(fields[2]) === group && fields[0] !== 'Z' && fields[0] !== 'X';
  });
}

/** Returns the processes of this user with a matching mark, or none if /proc is missing. */
async function findMarked(fits: (mark: string) => boolean): Promise<number[]> {
  const marked = (await readEach('environ')).filter(({ pid, text }) => {
    const mark = text.split('\0').find((line) => line.startsWith(`${MARK}=`));
    return pid !== process.pid && mark !== undefined && fits(mark.slice(MARK.length + 1));
  });
  return marked.map(({ pid }) => pid);
}

/**
 * Reads a file of every process. The reads are concurrent, because each one requires several turns of the event loop,
 * which are slow on a busy gateway.
 */
async function readEach(file: string): Promise<{ pid: number; text: string }[]> {
  const names = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
  // A process that cannot be read has exited or belongs to another user.
  const read = (name: string) => readFile(`/proc/${name}/${file}`, 'latin1').catch(() => '');
  return await Promise.all(names.map(async (name) => ({ pid: Number(name), text: await read(name) })));
}
