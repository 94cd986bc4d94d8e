import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { createConnection, type Server } from 'node:net';
import { formatListenAddress } from '../config/listen-address.ts';
import type { ListenAddress } from '../config/settings.ts';
import { codeOf, TagferryError } from '../errors.ts';

/**
 * Listens; a socket file that a crash left behind is taken away, one that somebody answers on is not. Owner and group may
 * use the socket. Throws a `TagferryError` with what to do.
 */
export async function listenOn(server: Server, address: ListenAddress): Promise<void> {
  try {
    await listenOnce(server, address);
  } catch (error) {
    const canTakeAway = codeOf(error) === 'EADDRINUSE' && 'path' in address && (await isStale(address.path));
    if (!canTakeAway) throw listenError(error, address);
    unlinkSync(address.path);
    await listenOnce(server, address).catch((again) => {
      throw listenError(again, address);
    });
  }
  if ('path' in address) chmodSync(address.path, 0o660);
}

function listenOnce(server: Server, address: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(address, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** A socket that refuses connections: nobody listens there any more. */
function isStale(path: string): Promise<boolean> {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSocket()) return Promise.resolve(false);
  return new Promise((resolve) => {
    const socket = createConnection(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', (error) => resolve(codeOf(error) === 'ECONNREFUSED'));
  });
}

const HINTS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'Another program listens there: stop it, or choose another INGEST_LISTEN.',
  EACCES: 'This user may not listen there: choose a port above 1023, or a folder that this user may write.',
  EADDRNOTAVAIL: 'This machine has no such address: correct INGEST_LISTEN.',
  ENOENT: 'The folder of the socket does not exist: create it, or correct INGEST_LISTEN.',
};

function listenError(cause: unknown, address: ListenAddress): TagferryError {
  const code = codeOf(cause) ?? 'unknown';
  const hint = HINTS[code] ?? 'Correct INGEST_LISTEN.';
  return new TagferryError(`cannot listen on ${formatListenAddress(address)}: ${code}`, {
    code: code === 'EADDRINUSE' ? 'ingest.address_in_use' : 'ingest.cannot_listen',
    hint,
    cause,
  });
}
