import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Portal } from '../../e2e/harness/portal.ts';
import { SilentNameServer } from './silent-name-server.ts';

const DEVICES = ['plc-1', 'plc-2', 'plc-3', 'plc-4', 'plc-5', 'plc-6'].map((name) => `${name}.plant.test`);
const TAGS = `sources:
${DEVICES.map((host, at) => `  plc${at}: { modbus: "tcp://${host}:502", every: 1s }`).join('\n')}
  mqtt: { mqtt: "mqtt://mqtt.plant.test:1883" }
  nats: { nats: "nats://nats.plant.test:4222" }
tags:
  T-0: { asset: 881, values: { flow: {} } }
  T-1:
    asset: 882
    values:
${DEVICES.map((_, at) => `      v${at}: { from: plc${at}, register: holding 0 }`).join('\n')}
      m: { from: mqtt, topic: a }
      n: { from: nats, subject: a }
`;

let sandbox: Sandbox;
let portal: Portal;
let agent: AgentProcess;
let nameServer: SilentNameServer;

beforeEach(async () => {
  nameServer = await SilentNameServer.open();
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  portal = new Portal(sandbox.url);
  await portal.start();
  const url = portal.url.replace('127.0.0.1', 'platform.test');
  agent = new AgentProcess(url, { tags: TAGS });
  const files = { hosts: '127.0.0.1 localhost platform.test\n', 'nsswitch.conf': 'hosts: files dns\n' };
  // The system default for an unanswered lookup is 45 s; here, a lookup takes longer than the test.
  const resolver = `nameserver ${nameServer.address}\noptions timeout:30 attempts:5\n`;
  const mounts = Object.entries({ ...files, 'resolv.conf': resolver }).map(([name, text]) => {
    writeFileSync(join(agent.folder, name), text);
    return `mount --bind "${join(agent.folder, name)}" "$(readlink -f /etc/${name})"`;
  });
  agent.surroundings = ['unshare', '--mount', 'sh', '-c', `${mounts.join(' && ')} && exec "$@"`, 'sh'];
});
afterEach(async () => {
  await agent.dispose();
  await portal.stop();
  await sandbox.stop();
  nameServer.close();
});

describe('unresponsive name server', () => {
  it('does not delay posts to the platform while eight device names are unresolved', async () => {
    const { asked } = nameServer;
    await agent.start();
    await agent.until(() => asked.size >= 2, 'names are looked up');
    // All connections are closed, so that the platform name is resolved again.
    await portal.stop();
    await agent.push([{ tag: 'T-0', key: 'flow', value: 1, timestamp: Date.now() }]);
    await portal.start();
    await agent.until(() => sandbox.values.counts().stored === 1, 'the value is on the platform');
    // Each source resolves its name independently of the others.
    const plant = () => [...asked].filter((name) => name.endsWith('plant.test'));
    await agent.until(() => new Set(plant()).size === DEVICES.length + 2, 'all names are looked up');
  });
});
