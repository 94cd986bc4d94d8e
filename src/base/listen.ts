import { chmodSync, closeSync, constants, fstatSync, lstatSync, openSync, unlinkSync } from 'node:fs';
import { createConnection, type Server } from 'node:net';
import pRetry from 'p-retry';
import { codeOf, TagferryError } from './errors.ts';

/** Address of a server: TCP or a Unix socket. */
export type ListenAddress = { host: string; port: number } | { path: string };

export interface ListenOptions {
  /** Settings key reported in the hint. */
  setting: string;
  /** Code of the thrown `TagferryError`. */
  code: string;
  /** Mode of a Unix socket. Default: owner and group, because a proxy may run as another user of the group. */
  mode?: number;
  /** Number of retries, one second apart, if the address is in use, because a previous instance may be shutting down. */
  retries?: number;
}

const RETRY_MS = 1_000;

/** Opens a file of any type without accessing its content. Node does not export the constant. */
const O_PATH = 0o10000000;
const HINTS: Readonly<Record<string, (setting: string) => string>> = {
  EADDRINUSE: (setting) =>
    `Stop the program that uses this address (run \`sudo ss -ltnp\`), or set ${setting} to another address.`,
  EACCES: (setting) => `Set ${setting} to a port above 1023, or to a socket in a folder that this user can write to.`,
  EADDRNOTAVAIL: (setting) => `Set ${setting} to an address of this machine (run \`ip address\`).`,
  ENOENT: (setting) => `Create the folder of the socket, or set ${setting} to another path.`,
};

/**
 * Starts listening. Removes a stale socket file, but not one in use by another program. Throws a `TagferryError` with
 * the configured code and the setting to change.
 */
export async function listen(server: Server, address: ListenAddress, options: ListenOptions): Promise<void> {
  try {
    await pRetry(() => listenOnce(server, address), {
      retries: options.retries ?? 0,
      minTimeout: RETRY_MS,
      factor: 1,
      shouldRetry: ({ error }) => codeOf(error) === 'EADDRINUSE',
    });
  } catch (error) {
    throw listenError(error, address, options);
  }
  if ('path' in address) setSocketMode(address.path, options.mode ?? 0o660);
}

/** Does not follow links, because other users may be able to replace the socket in its folder. */
function setSocketMode(path: string, mode: number): void {
  const socket = openSync(path, O_PATH | constants.O_NOFOLLOW);
  try {
    if (fstatSync(socket).isSocket()) chmodSync(`/proc/self/fd/${socket}`, mode);
  } finally {
    closeSync(socket);
  }
}

async function listenOnce(server: Server, address: ListenAddress): Promise<void> {
  if ('path' in address && (await isStale(address.path))) unlinkSync(address.path);
  await new Promise<void>((resolve, reject) => {
    const over = (error?: Error) => {
      server.off('error', over).off('listening', over);
      if (error) reject(error);
      else resolve();
    };
    server.once('error', over).once('listening', over).listen(address);
  });
}

/** Whether a socket can be created at the path without replacing a running program's socket. */
export async function isReplaceable(path: string): Promise<boolean> {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined || (await isStale(path));
}

/** Returns whether a socket refuses connections, which means that no program uses it. */
function isStale(path: string): Promise<boolean> {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSocket()) return Promise.resolve(false);
  return new Promise((resolve) => {
    const probe = createConnection(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(false);
    });
    probe.once('error', (error) => resolve(codeOf(error) === 'ECONNREFUSED'));
  });
}

function listenError(cause: unknown, address: ListenAddress, { setting, code }: ListenOptions): TagferryError {
  const why = codeOf(cause) ?? 'unknown';
  return new TagferryError(`${setting}: cannot listen on ${formatListenAddress(address)} (${why})`, {
    code,
    hint: listenHint(why, setting),
    cause,
  });
}

/** Returns the hint for an error code of `listen`. */
export function listenHint(code: string, setting: string): string {
  return HINTS[code]?.(setting) ?? `Set ${setting} to another address, or leave it empty.`;
}

/** Formats an address as in the settings: `127.0.0.1:8470`, `[::1]:8470`, `unix:/run/…`. */
export function formatListenAddress(address: ListenAddress): string {
  if ('path' in address) return `unix:${address.path}`;
  return address.host.includes(':') ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`;
}

/** Returns the listening address in the settings format, or `undefined` if the server is not listening. */
export function listeningAt(server: Server): string | undefined {
  const address = server.address();
  if (address === null) return undefined;
  return formatListenAddress(
    typeof address === 'string' ? { path: address } : { host: address.address, port: address.port },
  );
}

/** Whether the host is reachable only from this machine. */
export function isLoopbackHost(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, '').toLowerCase();
  return bare === 'localhost' || bare === '::1' || /^(::ffff:)?127(\.\d{1,3}){3}$/.test(bare);
}

/** Whether a listener at the address is reachable only from this machine. */
export function isLocalAddress(address: ListenAddress): boolean {
  return 'path' in address || isLoopbackHost(address.host);
}
