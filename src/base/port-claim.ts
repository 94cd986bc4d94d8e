/**
 * Reserves ports while no program listens on them: for a service that restarts, and for a program that receives its
 * address before it starts. An ephemeral port chosen by the kernel can be reused by outgoing connections and other
 * listeners in between.
 *
 * A reserved port is therefore outside the ephemeral range. Its number is claimed by a UDP socket on the same port,
 * which only one process can open. The claim is released when the process exits, and leaves no file behind. No data is
 * sent on it.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { systemClock } from './clock.ts';
import { codeOf } from './errors.ts';

export interface PortClaim {
  readonly port: number;
  release(): void;
}

/** First and last ephemeral ports on Linux. */
const EPHEMERAL_PORTS = '/proc/sys/net/ipv4/ip_local_port_range';
const LAST_PORT = 65_535;

/**
 * Port at which the next search starts. Skips recently used ports, because callers may still have connections to
 * them.
 */
let next: number | undefined;

/**
 * Returns a free port on 127.0.0.1, starting at `from`. Returns `undefined` if the ephemeral range is unknown or leaves
 * no ports.
 */
export async function claimPort(from?: number, ephemeralPorts = EPHEMERAL_PORTS): Promise<PortClaim | undefined> {
  const first = lastEphemeralPort(ephemeralPorts) + 1;
  const count = LAST_PORT + 1 - first;
  const begin = from ?? next ?? first + Math.floor(systemClock.random() * count);
  for (let i = 0; i < count; i++) {
    const port = first + ((begin - first + i) % count);
    const claim = await claimOf(port);
    if (claim === 'impossible') return undefined;
    next = port + 1;
    if (claim && (await isFree(port))) return claim;
    claim?.release();
  }
  return undefined;
}

/** Returns a port reserved for the lifetime of this process, or a currently free port if none can be claimed. */
export async function freePort(): Promise<number> {
  return (await claimPort())?.port ?? (await currentlyFreePort(0));
}

function lastEphemeralPort(file: string): number {
  try {
    return Number(/^\d+\s+(\d+)$/.exec(readFileSync(file, 'utf8').trim())?.[1] ?? LAST_PORT);
  } catch {
    return LAST_PORT;
  }
}

/** `undefined` if another program is using the port; `impossible` if this machine does not support port claims. */
async function claimOf(port: number): Promise<PortClaim | 'impossible' | undefined> {
  const socket = createSocket('udp4');
  try {
    await once(socket.bind({ port, address: '127.0.0.1', exclusive: true }), 'listening');
    socket.unref();
    return { port, release: () => socket.close() };
  } catch (error) {
    socket.close();
    return codeOf(error) === 'EADDRINUSE' ? undefined : 'impossible';
  }
}

const isFree = (port: number) =>
  currentlyFreePort(port).then(
    () => true,
    () => false,
  );

/** Returns the wanted port, or any free port for 0. Rejects if the port is in use. */
async function currentlyFreePort(wanted: number): Promise<number> {
  const server = createServer();
  await once(server.listen(wanted, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await once(server.close(), 'close');
  return port;
}
