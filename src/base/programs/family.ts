import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '../clock.ts';
import { codeOf } from '../errors.ts';
import { MARK } from './environment.ts';

/**
 * Everything that one command started. Its process group catches the ordinary children at once; a child that made itself a
 * daemon (a session of its own) has left the group but still carries the mark in its environment, which /proc shows.
 * What cleans its environment as well is out of reach without a cgroup of its own; under systemd the unit's ends it.
 */
export interface Family {
  /** Process group: the leader's pid, because it was started detached. */
  group: number;
  /** Value of the mark in its environment. */
  mark: string;
}

/** Each look reads the environment of every process. */
const POLL_MS = 50;
/** A process may fork between the look and the signal: looked again until nobody is left. */
const SWEEPS = 8;

/** Sends a signal to everyone in the family. */
async function signalFamily(family: Family, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  send(-family.group, signal);
  for (const pid of await findMarked((mark) => mark === family.mark)) send(pid, signal);
}

/**
 * Ends whoever is left: SIGTERM, then SIGKILL after `graceMs`. Returns how many were found. After it nobody is left, unless
 * a process hangs in the kernel (a dead NFS server), which no signal ends.
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
 * Ends the commands that a killed daemon of the same `instance` left behind: their reactions run again, and two copies of
 * one command must not work on one valve. Returns how many processes were found.
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

/** A signal to a process or (negative) a group that may be gone already. */
function send(pid: number, signal: 'SIGTERM' | 'SIGKILL' | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    // EPERM: it is there but changed its user; the group's other members got the signal.
    return codeOf(error) === 'EPERM';
  }
}

async function membersOf(family: Family): Promise<number> {
  const marked = await findMarked((mark) => mark === family.mark);
  // A zombie keeps its group signalable until it is reaped; it shows no environment, and it runs no more.
  if (marked.length > 0) return marked.length;
  return (await groupIsAlive(family.group)) ? 1 : 0;
}

async function groupIsAlive(group: number): Promise<boolean> {
  if (!send(-group, 0)) return false;
  for (const pid of await pids()) {
    const stat = await readProc(pid, 'stat');
    // After the name in parentheses, which may hold anything: state, parent, group.
    const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields && Number(fields[2]) === group && fields[0] !== 'Z' && fields[0] !== 'X') return true;
  }
  return false;
}

/** Processes of this user whose environment carries a mark that fits. None where there is no /proc. */
async function findMarked(fits: (mark: string) => boolean): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await pids()) {
    if (pid === process.pid) continue;
    const environment = await readProc(pid, 'environ');
    const mark = environment?.split('\0').find((line) => line.startsWith(`${MARK}=`));
    if (mark !== undefined && fits(mark.slice(MARK.length + 1))) found.push(pid);
  }
  return found;
}

async function pids(): Promise<number[]> {
  const names = await readdir('/proc').catch(() => []);
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}

async function readProc(pid: number, file: string): Promise<string | undefined> {
  try {
    return await readFile(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    // Gone, or another user's.
    return undefined;
  }
}
