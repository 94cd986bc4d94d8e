/** State folders written by released versions, opened by this version, and by an older one. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readChangelog } from '../../scripts/changelog.ts';
import { readStoppedInbox } from '../../src/control/stopped-inbox.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { BACKLOG, EVENTS, QUARANTINED, TAGS } from '../fixtures/state-folders/contents.ts';
import { AgentProcess } from '../process/agent-process.ts';

const FOLDER = join(import.meta.dirname, '../fixtures/state-folders');
const released = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.tar.xz'))
  .map((name) => name.replace('.tar.xz', ''));

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

function unpack(version: string): void {
  mkdirSync(agent.state, { mode: 0o700 });
  execFileSync('tar', ['-C', agent.state, '-xJf', join(FOLDER, `${version}.tar.xz`), '--no-same-owner']);
}

it('repository contains a state folder from every release', () => {
  const versions = readChangelog(join(import.meta.dirname, '../..')).map(({ version }) => version);
  expect(released.toSorted()).toEqual(versions.toSorted());
});

describe.for(released)('state folder from release %s', (version) => {
  it('is read completely: backlog, quarantine and inbox', {
    timeout: 90_000,
  }, async () => {
    unpack(version);
    await agent.start();
    expect(agent.logged('store.corrupt')).toEqual([]);
    const isEmpty = async () => (await agent.metric('tagferry_buffer_values')) === 0;
    await agent.until(isEmpty, 'the backlog is delivered', 60_000);
    for (const { asset, key, values } of BACKLOG) {
      expect(sandbox.values.compare(asset, key, values), `${asset} ${key}`).toEqual({
        missing: [],
        invented: [],
        different: [],
      });
      const statuses = new Map(sandbox.values.list(asset, key).map(({ timestampMs, status }) => [timestampMs, status]));
      for (const { timestampMs, status } of values) expect(statuses.get(timestampMs) ?? 'good').toBe(status);
    }
    expect(await agent.metric('tagferry_buffer_quarantined_values')).toBe(QUARANTINED.values.length);
    // Known events do not run reactions again.
    expect(agent.logged('reaction.log')).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
    const events = await readStoppedInbox(agent.state, async (inbox) => inbox.list({ limit: 100 }));
    expect(events.map(({ state, unrecognised }) => ({ state, unrecognised }))).toEqual(
      EVENTS.map(() => ({ state: 'done', unrecognised: false })),
    );
  });

  it.for(['buffer.db', 'inbox.db'])('is rejected unchanged if a newer version wrote its %s', async (name) => {
    unpack(version);
    const file = join(agent.state, name);
    const write = (sql: string) => {
      const database = new Database(file);
      const found = database.prepare(sql);
      const result = found.reader ? found.all() : found.run();
      database.close();
      return result;
    };
    write('CREATE TABLE of_the_future (x)');
    write('INSERT INTO of_the_future VALUES (1)');
    write('PRAGMA user_version = 99');
    agent.launch();
    expect(await agent.ended()).toBe(1);
    const said = agent.output;
    expect(said).toContain(`${name} was written by a newer version of tagferry (format 99; this version reads `);
    expect(said).toContain('"code":"store.format"');
    expect(write('PRAGMA user_version')).toEqual([{ user_version: 99 }]);
    expect(write('SELECT x FROM of_the_future')).toEqual([{ x: 1 }]);
    expect(readdirSync(agent.state).filter((one) => one.includes('corrupt'))).toEqual([]);
  });
});
