/** Which processes are the daemon, and whether one of them has a port. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

/** TCP_LISTEN of the kernel (tcp_states.h), as /proc/net/tcp writes it. */
const LISTEN = '0A';

/** By the service manager, and by who wrote itself into the state folder. */
export function daemonProcesses(stateDir: string, mainPid = ''): number[] {
  return [mainPid, textOf(join(stateDir, 'tagferry.pid'))]
    .map((text) => Number(text.trim()))
    .filter((pid) => Number.isSafeInteger(pid) && pid > 0);
}

/** `false` too where its files may not be looked at. */
export function listensOn(pid: number, port: number): boolean {
  const sockets = new Set(['tcp', 'tcp6'].flatMap((table) => listeningInodes(textOf(`/proc/net/${table}`), port)));
  return sockets.size > 0 && openFiles(pid).some((file) => sockets.has(file));
}

/** Lines of `sl local_address rem_address st … inode`, addresses and ports in hexadecimal. */
function listeningInodes(table: string, port: number): string[] {
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    const isListening = state === LISTEN && Number.parseInt(local.split(':').at(-1)!, 16) === port;
    return isListening ? [`socket:[${inode}]`] : [];
  });
}

function openFiles(pid: number): string[] {
  const folder = `/proc/${pid}/fd`;
  try {
    return readdirSync(folder).flatMap((name) => {
      try {
        return [readlinkSync(join(folder, name))];
      } catch {
        // Closed meanwhile.
        return [];
      }
    });
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
