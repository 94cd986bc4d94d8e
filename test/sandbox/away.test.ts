/** A sandbox that is away comes back where it was: nobody else gets its port meanwhile, and with it those who call there. */
import { readFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { claimPort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';

const open: Sandbox[] = [];
afterEach(async () => {
  for (const sandbox of open.splice(0)) await sandbox.stop();
});

async function start(options: ConstructorParameters<typeof Sandbox>[0] = {}): Promise<Sandbox> {
  const sandbox = new Sandbox(options);
  open.push(sandbox);
  await sandbox.start();
  return sandbox;
}

const portOf = (url: string) => Number(new URL(url).port);
const LAST_GIVEN = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/)[1]);

it('keeps its addresses from all that take any port, and from whoever looks there first', async () => {
  const away = await start({ adminPort: 0, identityPort: 0 });
  const addresses = [away.url, away.identityUrl, away.adminUrl];
  expect(new Set(addresses).size).toBe(3);
  for (const address of addresses) expect(portOf(address)).toBeGreaterThan(LAST_GIVEN);

  await away.goOffline('refuse');
  await expect(fetch(away.url)).rejects.toThrow();
  const other = (await claimPort(portOf(away.url)))!;
  other.release();
  expect(addresses.map(portOf)).not.toContain(other.port);

  await away.goOnline();
  expect([away.url, away.identityUrl, away.adminUrl]).toEqual(addresses);
  await expect(fetch(away.url)).resolves.toBeInstanceOf(Response);
});

it('that has ended leaves its port to others', async () => {
  const first = await start();
  await first.stop();
  const next = await claimPort(portOf(first.url));
  next?.release();
  expect(next?.port).toBe(portOf(first.url));
});

it('listens where it is told, and nowhere else', async () => {
  const first = await start();
  await first.stop();
  const second = await start({ port: portOf(first.url) });
  expect(second.url).toBe(first.url);
  await expect(new Sandbox({ port: portOf(first.url) }).start()).rejects.toThrow('EADDRINUSE');
});
