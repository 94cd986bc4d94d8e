import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { runVerb } from '../commands/verb-run.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { compileDiskLayer } from './disk-fault.ts';
import { SmallDisk } from './small-disk.ts';

const TAGS = 'tags: { FT-101: { asset: 881, values: { flow: { unit: 12 } } } }\n';

let library: string;
let sandbox: Sandbox;
let agent: AgentProcess;
let disk: SmallDisk | undefined;

beforeAll(() => {
  library = compileDiskLayer();
});
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
  disk?.dispose();
  disk = undefined;
});

const orders = (text: string) => writeFileSync(join(agent.folder, 'orders'), `${text}\n`);
const value = (number: number) => ({ tag: 'FT-101', key: 'flow', value: number, timestamp: 1_000_000 + number });
const healthStatus = async () => (await agent.call(agent.ops, '/healthz')).status;
const posts = () => agent.metric('tagferry_posts_total{outcome="delivered"}');

describe('a state folder that turns read-only while the agent runs', () => {
  // A file system with files open for writing lets nobody remount it: the kernel does it by itself, after an error, and
  // then every write says EROFS. So does the layer.
  it('makes the door answer 503, posts nothing twice, and goes on when it may be written again', async () => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { POST_INTERVAL: '2s' } });
    orders('');
    const layer = {
      LD_PRELOAD: library,
      DISK_LAYER_PATH: agent.state,
      DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
      DISK_LAYER_COUNTS: join(agent.folder, 'counts'),
    };
    await agent.start(layer);
    expect((await agent.push([value(1), value(2)])).status).toBe(204);
    orders(`refuse_writes ${constants.errno.EROFS}`);
    // What was taken in leaves all the same, though that it has cannot be written down.
    await agent.until(() => sandbox.values.counts(881).stored === 2, 'what was taken is on the platform');
    const refused = await agent.push([value(3)]);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(await healthStatus()).toBe(503);
    const failedBefore = await agent.metric('tagferry_commits_total{outcome="failed"}');
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    expect(await posts()).toBe(1);
    expect((await agent.metric('tagferry_commits_total{outcome="failed"}')) - failedBefore).toBeLessThan(15);

    orders('');
    await agent.until(async () => (await agent.push([value(4)])).status === 204, 'the disk takes writes again');
    await agent.until(async () => (await healthStatus()) === 200, 'the agent is healthy again');
    await agent.until(() => sandbox.values.counts(881).stored === 3, 'the later value is on the platform');
    // It wrote down what had left: a start afterwards posts none of it again.
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'nothing waits');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await agent.push([value(5)]);
    await agent.until(async () => (await posts()) === 1, 'the last value is on the platform, and its post counted');
    expect(sandbox.values.counts(881).stored).toBe(4);
    expect(sandbox.values.counts(881).received).toBe(4);
  }, 90_000);
});

describe('a state folder that is read-only at the start', () => {
  it('ends the start with 1, so that the service manager tries again, and says which folder and what to do', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state } });
    for (const was of ['never there', 'used before']) {
      disk.remount('ro');
      agent.launch();
      expect([was, await agent.ended()]).toEqual([was, 1]);
      const [failed] = agent.logged('agent.start_failed').slice(-1);
      expect(failed).toMatchObject({ code: 'store.unwritable', hint: expect.stringContaining('mount it') });
      expect(failed?.error).toContain(`${disk.state} cannot be written: its file system is read-only`);
      const verb = await runVerb(['buffer', 'ls', '--config', agent.config]);
      expect(verb.status).toBe(1);
      expect(verb.stderr).toContain(was === 'used before' ? 'is read-only' : 'there is no buffer');
      disk.remount('rw');
      await agent.start();
      expect((await agent.push([value(1)])).status).toBe(204);
      expect(await agent.end('SIGTERM')).toBe(0);
    }
  }, 90_000);
});

describe('a state folder in which something else stands', () => {
  beforeEach(() => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    mkdirSync(agent.state);
  });

  const VERBS = [['ls'], ['export'], ['purge', '--all', '--yes'], ['quarantine'], ['requeue']];

  it.each([
    [
      'a lock of garbage',
      () => writeFileSync(join(agent.state, 'tagferry.lock'), 'no database at all\n'.repeat(100)),
      'tagferry.lock',
    ],
    ['a folder for a lock', () => mkdirSync(join(agent.state, 'tagferry.lock')), 'tagferry.lock'],
    ['a folder for an inbox', () => mkdirSync(join(agent.state, 'inbox.db')), 'inbox.db'],
  ])(
    '(%s) ends every verb and the daemon with 1, and names the file',
    async (_what, make, name) => {
      writeFileSync(join(agent.state, 'buffer.db'), '');
      make();
      for (const words of VERBS) {
        const { status, stderr } = await runVerb(['buffer', ...words, '--config', agent.config]);
        expect([words[0], status]).toEqual([words[0], 1]);
        expect(stderr).toContain(join(agent.state, name));
        expect(stderr.trim().split('\n')).toHaveLength(2);
      }
      agent.launch();
      expect(await agent.ended()).toBe(1);
      expect(agent.logged('agent.start_failed')[0]?.error).toContain(join(agent.state, name));
      expect(existsSync(join(agent.state, name))).toBe(true);
    },
    60_000,
  );
});
