/**
 * Ports that stay somebody's own while nobody listens there: of a service that goes away and comes back, and of a program that is told
 * its address before it starts. A port that the kernel chose is free for all in between. It lies where outgoing connections and other
 * listeners get theirs, and whoever got it had the callers too.
 *
 * So it is one beyond those that the kernel gives by itself, and its number is claimed by the UDP socket of that number, which no two
 * processes have: a claim ends with its process, however that ends, and leaves no file. Nothing is ever sent there.
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

/** Linux: the first and the last port that the kernel gives to who names none. */
const GIVEN_PORTS = '/proc/sys/net/ipv4/ip_local_port_range';
const LAST_PORT = 65_535;

/** Where this process looks next. Never where it had one a moment ago: callers may still have connections to that. */
let next: number | undefined;

/**
 * A port of 127.0.0.1 where nobody listens: `from`, or the first behind it that is free. `undefined` where the kernel does not say
 * which ports it gives, or leaves none.
 */
export async function claimPort(from?: number, givenPorts = GIVEN_PORTS): Promise<PortClaim | undefined> {
  const first = lastGivenPort(givenPorts) + 1;
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

/** The same for as long as this process lives; where none can be claimed, a port that was free a moment ago. */
export async function freePort(): Promise<number> {
  return (await claimPort())?.port ?? (await listenForAMoment(0));
}

function lastGivenPort(file: string): number {
  try {
    return Number(/^\d+\s+(\d+)$/.exec(readFileSync(file, 'utf8').trim())?.[1] ?? LAST_PORT);
  } catch {
    return LAST_PORT;
  }
}

/** `undefined` where somebody else has it; `impossible` where this machine claims no ports so. */
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
  listenForAMoment(port).then(
    () => true,
    () => false,
  );

/** Gives the port. */
async function listenForAMoment(wanted: number): Promise<number> {
  const server = createServer();
  await once(server.listen(wanted, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await once(server.close(), 'close');
  return port;
}
