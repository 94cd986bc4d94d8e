import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { lockState } from '../../../src/store/state-lock.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../../old/commands/verb-run.ts';
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
const value = (number: number) => ({
  tag: 'FT-101',
  key: 'flow',
  value: number,
  timestamp: 1_700_000_000_000 + number,
});
const healthStatus = async () => (await agent.call(agent.ops, '/healthz')).status;
const posts = () => agent.metric('tagferry_posts_total{outcome="delivered"}');

describe('state folder that becomes read-only', () => {
  // A user cannot remount a file system read-only while files are open for writing. The kernel does so after an error,
  // and every write then fails with EROFS, as in this layer.
  it('causes 503 without duplicate posts until it is writable again', async () => {
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
    // Accepted values are posted, although the delivery cannot be recorded.
    await agent.until(() => sandbox.values.counts(881).stored === 2, 'the accepted values are on the platform');
    const refused = await agent.push([value(3)]);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(await healthStatus()).toBe(503);
    const failedBefore = await agent.metric('tagferry_commits_total{outcome="failed"}');
    const beganMs = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    expect(await posts()).toBe(1);
    const failed = (await agent.metric('tagferry_commits_total{outcome="failed"}')) - failedBefore;
    expect(failed / (performance.now() - beganMs)).toBeLessThan(15 / 6_000);

    orders('');
    await agent.until(async () => (await agent.push([value(4)])).status === 204, 'disk writes restored');
    await agent.until(async () => (await healthStatus()) === 200, 'the agent is healthy again');
    await agent.until(() => sandbox.values.counts(881).stored === 3, 'the later value is on the platform');
    // Deliveries were recorded: the next start does not repeat a post.
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'no value is waiting');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await agent.push([value(5)]);
    await agent.until(async () => (await posts()) === 1, 'the last value is on the platform, and its post counted');
    expect(sandbox.values.counts(881).stored).toBe(4);
    expect(sandbox.values.counts(881).received).toBe(4);
  }, 300_000);
});

describe('read-only state folder at startup', () => {
  it('makes every listener respond 503 with a hint until the folder is writable', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state } });
    for (const was of ['never there', 'used before']) {
      disk.remount('ro');
      const { length } = agent.logged('store.unavailable');
      const child = agent.launch();
      await agent.until(() => agent.logged('store.unavailable').length > length, 'the agent is waiting');
      const words = `${disk.state}: its file system is read-only`;
      const [said] = agent.logged('store.unavailable').slice(-1);
      expect(said).toMatchObject({
        error: expect.stringContaining(words) as string,
        hint: expect.stringContaining('remount the file system') as string,
      });
      const health = await agent.call(agent.ops, '/healthz');
      expect(health.status).toBe(503);
      const { problems } = JSON.parse(health.text) as { problems: string[] };
      expect(problems.join()).toContain(`${words}. `);
      const refused = await agent.push([value(1)]);
      expect([refused.status, refused.text]).toEqual([503, expect.stringContaining('store.unavailable')]);
      expect(refused.text).not.toContain(disk.state);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      const event = await agent.call(agent.webhook, '/webhook', { body: '{}' });
      expect([event.status, event.text]).toEqual([503, expect.not.stringContaining(disk.state)]);
      const asked = await runVerb(['status', '--config', agent.config]);
      expect([asked.status, asked.stderr]).toEqual([1, expect.stringContaining('is waiting for its disk')]);
      const verb = await runVerb(['buffer', 'ls', '--config', agent.config]);
      expect(verb.status).toBe(1);
      expect(verb.stderr).toContain(was === 'used before' ? 'is read-only' : 'no buffer in');
      disk.remount('rw');
      await agent.until(() => agent.logged('store.available').length > 0, 'startup continues');
      await agent.until(async () => (await healthStatus().catch(() => 0)) === 200, 'the agent is ready');
      expect(child.exitCode).toBe(null);
      // 1 s, then 2 s, then 4 s: the delay doubles, and the log reports each time the number of attempts has doubled.
      const [available] = agent.logged('store.available').slice(-1);
      expect(Number(available?.attempts)).toBeLessThan(2 + Math.log2(Number(available?.waitedMs) / 1000 + 1));
      const lines = 1 + Math.floor(Math.log2(Number(available?.attempts) - 1));
      expect(agent.logged('store.unavailable')).toHaveLength(length + lines);
      await agent.until(async () => (await agent.push([value(1)])).status === 204, 'values are accepted');
      expect(await agent.end('SIGTERM')).toBe(0);
    }
    expect(agent.logged('agent.start_failed')).toEqual([]);
  }, 300_000);

  it('causes a reload to be postponed with a message, and SIGTERM stops the agent with exit status 0', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state } });
    disk.remount('ro');
    agent.launch();
    await agent.until(() => agent.logged('store.unavailable').length > 0, 'the agent is waiting');
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reload_postponed').length === 1, 'the reload is postponed');
    expect((await agent.call(agent.ops, '/readyz')).status).toBe(503);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(agent.logged('agent.stop_failed')).toEqual([]);
    expect([agent.ingest, agent.webhook, agent.ops].filter((socket) => existsSync(socket))).toEqual([]);
  }, 300_000);
});

describe('startup on a failing disk', () => {
  it('waits while there are I/O errors, then continues with the previous data', async () => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { POST_INTERVAL: '1h' } });
    orders('');
    const layer = {
      LD_PRELOAD: library,
      DISK_LAYER_PATH: agent.state,
      DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
    };
    await agent.start(layer);
    expect((await agent.push([value(1), value(2)])).status).toBe(204);
    await agent.end('SIGKILL');
    orders(`refuse_writes ${constants.errno.EIO}`);
    agent.launch(layer);
    await agent.until(() => agent.logged('store.unavailable').length > 0, 'the agent is waiting');
    expect(agent.logged('store.unavailable')[0]?.error).toMatch(/\((EIO|SQLITE_IOERR_\w+)\)/);
    expect((await agent.push([value(3)])).status).toBe(503);
    orders('');
    await agent.until(() => agent.logged('store.available').length === 1, 'startup continues');
    await agent.until(
      async () => (await agent.push([value(3)]).catch(() => undefined))?.status === 204,
      'values are accepted',
    );
    expect(await agent.metric('tagferry_buffer_values')).toBe(3);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('waits for space for a new buffer and then accepts values', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state } });
    disk.fill();
    agent.launch();
    await agent.until(() => agent.call(agent.ops, '/healthz').then(Boolean, () => false), 'the listeners are open');
    expect((await agent.call(agent.ops, '/healthz')).text).toContain(`${disk.state}: its disk is full`);
    expect((await agent.push([value(1)])).status).toBe(503);
    disk.free();
    await agent.until(() => agent.logged('store.available').length === 1, 'startup continues');
    await agent.until(
      async () => (await agent.push([value(1)]).catch(() => undefined))?.status === 204,
      'values are accepted',
    );
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('waits for space if there is no reserve, then continues with the previous data', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state, POST_INTERVAL: '1h' } });
    await agent.start();
    expect((await agent.push([value(1), value(2)])).status).toBe(204);
    expect(await agent.end('SIGTERM')).toBe(0);
    rmSync(join(disk.state, 'buffer.db.reserve'));
    disk.fill();
    agent.launch();
    await agent.until(() => agent.logged('store.unavailable').length === 1, 'the agent is waiting');
    disk.free();
    await agent.until(() => agent.logged('store.available').length === 1, 'startup continues');
    await agent.until(
      async () => (await agent.push([value(3)]).catch(() => undefined))?.status === 204,
      'values are accepted',
    );
    expect(sandbox.values.counts(881).stored + (await agent.metric('tagferry_buffer_values'))).toBe(3);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('restores a corrupt buffer that was set aside on a full disk', async () => {
    disk = new SmallDisk(16);
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: disk.state, POST_INTERVAL: '1h' } });
    const buffer = join(disk.state, 'buffer.db');
    await agent.start();
    expect((await agent.push([value(1), value(2)])).status).toBe(204);
    await agent.end('SIGKILL');
    const sound = new Database(buffer);
    sound.pragma('wal_checkpoint(TRUNCATE)');
    sound.close();
    const bytes = readFileSync(buffer);
    writeFileSync(buffer, bytes.fill(0x5a, 0, 16));
    rmSync(`${buffer}.reserve`);
    // Enough for the lock, but not for a new buffer.
    disk.fill(16_384);
    agent.launch();
    await agent.until(() => agent.logged('store.unavailable').length === 1, 'the agent is waiting');
    const aside = () => readdirSync(disk!.state).filter((name) => name.startsWith('buffer.db.corrupt-'));
    // The corrupt buffer stays in place until another one is complete.
    expect([aside(), readFileSync(buffer).subarray(0, 16)]).toEqual([[], Buffer.alloc(16, 0x5a)]);
    disk.free();
    await agent.until(() => agent.logged('store.available').length === 1, 'startup continues');
    await agent.until(
      async () => (await agent.metric('tagferry_buffer_values').catch(() => 0)) === 2,
      'both agents have recovered',
    );
    expect(agent.logged('store.corrupt')[0]).toMatchObject({ setAsideAs: join(disk.state, aside()[0]!), values: 2 });
    expect(aside()).toHaveLength(1);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('exits with 1 if the state folder cannot be created', async () => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: '/proc/none/state' } });
    agent.launch();
    expect(await agent.ended()).toBe(1);
    expect(agent.logged('agent.start_failed')[0]).toMatchObject({ code: 'store.unwritable' });
  });

  it('exits with 1 immediately if another agent is using the folder', async () => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    await agent.start();
    const other = new AgentProcess(sandbox.url, { tags: TAGS, env: { STATE_DIR: agent.state } });
    try {
      other.launch();
      expect(await other.ended()).toBe(1);
      expect(other.logged('agent.start_failed')[0]).toMatchObject({ code: 'store.locked' });
      expect(other.logged('store.unavailable')).toEqual([]);
    } finally {
      await other.dispose();
    }
  }, 300_000);
});

describe('state folder with unexpected files', () => {
  beforeEach(() => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    mkdirSync(agent.state);
  });

  const VERBS = [['ls'], ['export'], ['purge', '--all', '--yes'], ['quarantine'], ['requeue']];

  it.each([
    [
      'a corrupt lock',
      () => writeFileSync(join(agent.state, 'tagferry.lock'), 'no database at all\n'.repeat(100)),
      'tagferry.lock',
    ],
    ['a folder as the lock', () => mkdirSync(join(agent.state, 'tagferry.lock')), 'tagferry.lock'],
    ['a folder as the inbox', () => mkdirSync(join(agent.state, 'inbox.db')), 'inbox.db'],
  ])(
    '(%s) makes every command and the agent report the file and exit with 1',
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

describe('state folder locked by a command', () => {
  it('makes the agent respond 503 and report READY until the command finishes', async () => {
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    const verb = lockState(agent.state, 'verb');
    try {
      agent.launch();
      await agent.until(() => agent.logged('store.unavailable').length === 1, 'startup is waiting');
      expect(agent.logged('store.unavailable')[0]?.error).toContain(`process ${process.pid}, a tagferry command`);
      await agent.until(
        async () => (await agent.push([]).catch(() => undefined))?.status === 503,
        'the agent responds 503',
      );
      expect((await agent.call(agent.ops, '/healthz')).status).toBe(503);
    } finally {
      verb.release();
    }
    await agent.until(() => agent.logged('agent.ready').length === 1, 'startup continues');
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);
});
