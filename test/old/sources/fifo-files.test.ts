import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const makeFifo = (path: string) => execFileSync('mkfifo', [path]);
const makeDevice = (path: string) => symlinkSync('/dev/zero', path);

function replace(path: string, make: (path: string) => void): void {
  rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  make(path);
}

describe('FIFO or device in place of a configuration file', () => {
  it.each([
    ['FIFO', 'agent.env', makeFifo],
    ['FIFO', 'tags.yaml', makeFifo],
    ['FIFO', 'tags.d/more.yaml', makeFifo],
    ['FIFO', 'reactions.yaml', makeFifo],
    ['device', 'tags.yaml', makeDevice],
  ])('is rejected by a reload (%s as %s), and the agent can still be stopped', async (_kind, name, make) => {
    await agent.start();
    replace(join(agent.config, name), make);
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.refused').length > 0, 'the reload is rejected');
    const [rejected] = agent.logged('config.refused');
    expect(JSON.stringify(rejected)).toContain(name);
    expect(JSON.stringify(rejected)).toContain('not a regular file');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('does not block startup in place of a broker password file', async () => {
    makeFifo(join(agent.config, 'password'));
    agent.write(sandbox.url, {
      tags: [
        'sources: { broker: { mqtt: "mqtt://127.0.0.1:1", username: u, password_file: password } }',
        'tags: { T-1: { asset: 881, values: { n: { unit: 1, from: broker, topic: n } } } }\n',
      ].join('\n'),
    });
    await agent.start();
    await agent.until(() => agent.logged('broker.away').length > 0, 'the password file is reported');
    expect(agent.logged('broker.away')[0]).toMatchObject({
      broker: 'broker',
      code: 'broker.file',
      error: `cannot read ${join(agent.config, 'password')} of the broker broker (not a regular file)`,
    });
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
