import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { HungShare } from '../../e2e/harness/hung-share.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let share: HungShare | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await share?.unmount();
  share = undefined;
  await agent.dispose();
  await sandbox.stop();
});

describe('host source with six unresponsive network shares', () => {
  it('delivers all other readings, and does not block shutdown', async () => {
    const shares = Array.from({ length: 6 }, (_, n) => join(agent.folder, `share${n}`));
    for (const folder of shares) mkdirSync(folder);
    share = await HungShare.mount(shares);
    const disks = shares.map((folder, n) => `d${n}: { from: self, reading: "disk_free:${folder}" }`);
    const others = ['uptime: { from: self, reading: uptime }', 'root: { from: self, reading: disk_free }'];
    agent.write(sandbox.url, {
      tags: `sources: { self: { host: true, every: 200ms } }\ntags: { GW-1: { asset: 881, values: { ${[...disks, ...others].join(', ')} } } }\n`,
    });
    await agent.start();
    const delivered = (key: string) => sandbox.values.list(881, key).length;
    await agent.until(() => agent.logged('host.unreadable').length > 1, 'the shares are reported');
    const before = delivered('uptime');
    expect(before).toBeGreaterThan(5);
    await agent.until(() => delivered('uptime') > before + 5, 'the uptime is delivered');
    await agent.until(() => delivered('root') > 0, 'the space of the root file system is delivered');
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
