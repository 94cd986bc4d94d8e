import { chmod, unlink } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import { codeOf, messageOf, TagferryError } from '../errors.ts';

/** Same shape as the setting: `host:port` or a Unix socket. */
export type ListenAddress = { host: string; port: number } | { path: string };

/** Opens the server's socket. Throws `webhook.listen` with what to do about it. */
export async function listenOn(server: Server, address: ListenAddress): Promise<void> {
  try {
    if ('path' in address) {
      await removeStaleSocket(address.path);
      await listening(server, { path: address.path });
      // The proxy in front runs as another user of the same group.
      await chmod(address.path, 0o660);
    } else {
      await listening(server, { host: address.host, port: address.port });
    }
  } catch (error) {
    if (error instanceof TagferryError) throw error;
    const where = 'path' in address ? address.path : `${address.host}:${address.port}`;
    throw new TagferryError(`The webhook listener cannot use ${where}: ${messageOf(error)}`, {
      code: 'webhook.listen',
      hint: 'Give WEBHOOK_LISTEN an address that is free, or leave it empty.',
      cause: error,
    });
  }
}

function listening(server: Server, options: { path: string } | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** A socket that a killed process left behind is removed; one that somebody answers on is not. */
async function removeStaleSocket(path: string): Promise<void> {
  const outcome = await new Promise<string>((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve('alive');
    });
    probe.once('error', (error) => resolve(codeOf(error) ?? ''));
  });
  if (outcome === 'alive') {
    throw new TagferryError(`${path} is in use by another process`, {
      code: 'webhook.listen',
      hint: 'Stop the other process, or give WEBHOOK_LISTEN another path.',
    });
  }
  if (outcome === 'ECONNREFUSED') await unlink(path);
}
