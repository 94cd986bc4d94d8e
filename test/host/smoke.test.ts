// Requires: root, mmdebstrap, g++, dpkg-parsechangelog
/** The life of the package on one gateway, for every run of CI. The other files of this folder contain the details. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianTree } from './debian-tree.ts';
import { Gateway, packageOf } from './gateway.ts';
import { until } from './machine.ts';

const UNIT = 'tagferry.service';

let gateway: Gateway;
let older: string;
let newer: string;

beforeAll(async () => {
  const packages = async () => [await packageOf({ version: '0.0.1' }), await packageOf()] as const;
  // One compiles while the other downloads.
  [[older, newer]] = await Promise.all([packages(), debianTree()]);
  gateway = await Gateway.boot();
}, 1_200_000);

afterAll(async () => {
  await gateway?.stop();
});

describe('Debian package', { timeout: 300_000 }, () => {
  it('installs a service that is ready when systemctl start returns', async () => {
    await gateway.install(older, 'apt');
    await gateway.startSandbox();
    await gateway.configure();
    await gateway.machine.sh(`systemctl enable --now ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('active');
    expect(await gateway.machine.property(UNIT, 'StatusText')).toBe('online');
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status).toBe(204);
  });

  it('loses no acknowledged value in a kill, a reload and an upgrade', async () => {
    await gateway.startPusher();
    await gateway.pushed(50);
    const killed = await gateway.mainPid();
    await gateway.machine.sh(`kill -KILL ${killed}`);
    await gateway.restarted(killed);
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
    await gateway.pushed(50);
    const upgraded = await gateway.mainPid();
    await gateway.install(newer);
    await gateway.restarted(upgraded);
    await gateway.pushed(50);
    await gateway.stopPusher();
    expect(await gateway.missing()).toEqual([]);
  });

  it('leaves neither service, configuration nor state after a purge of a drained gateway', async () => {
    // The platform has a value slightly earlier than the agent has its response.
    await until('the buffer is empty', async () => (await gateway.machine.sh('tagferry buffer ls --json')) === '[]');
    await gateway.machine.sh('apt-get purge --yes tagferry', { timeoutMs: 120_000 });
    for (const path of ['/etc/tagferry', '/var/lib/tagferry', '/usr/bin/tagferry']) {
      expect(gateway.machine.exists(path), path).toBe(false);
    }
    expect(await gateway.machine.property(UNIT, 'LoadState')).toBe('not-found');
  });
});
