/** During an outage, no other program can get the port of a sandbox, and with it the sandbox's clients. */
import { afterEach, expect, it } from 'vitest';
import { claimPort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';

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

it('sandbox keeps its ports reserved during an outage', async () => {
  const away = await start({ adminPort: 0, identityPort: 0 });
  const addresses = [away.url, away.identityUrl, away.adminUrl];
  expect(new Set(addresses).size).toBe(3);

  await away.goOffline('refuse');
  await expect(fetch(away.url)).rejects.toThrow();
  const other = (await claimPort(portOf(away.url)))!;
  other.release();
  expect(addresses.map(portOf)).not.toContain(other.port);

  await away.goOnline();
  expect([away.url, away.identityUrl, away.adminUrl]).toEqual(addresses);
  await expect(fetch(away.url)).resolves.toBeInstanceOf(Response);
});

it('sandbox releases its port when it stops', async () => {
  const first = await start();
  await first.stop();
  const next = await claimPort(portOf(first.url));
  next?.release();
  expect(next?.port).toBe(portOf(first.url));
});

it('sandbox listens only on its configured address', async () => {
  const first = await start();
  await first.stop();
  const second = await start({ port: portOf(first.url) });
  expect(second.url).toBe(first.url);
  await expect(new Sandbox({ port: portOf(first.url) }).start()).rejects.toThrow('EADDRINUSE');
});
