/** A gateway with values and events fails and is replaced. Values and events are counted on the platform. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { salvage } from '../../../src/buffer/recovery/salvage.ts';
import { SeriesCopy } from '../../../src/buffer/recovery/series-copy.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { gatewayName } from '../../../src/store/gateway-identity.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { VALUE_TAGS, ValuePlant } from '../../e2e/harness/value-plant.ts';
import { compileDiskLayer } from '../../host/faults/disk-fault.ts';
import { fillBuffer } from '../../host/faults/filled-buffer.ts';
import { wholeLines } from '../../whole-lines.ts';
import { runVerb, type VerbOutcome } from './verb-run.ts';

const NOTHING_WRONG = { missing: 0, invented: 0, different: 0 };

let folder: string;
let sandbox: Sandbox;
let a: AgentProcess;
let b: AgentProcess;
let backup: string;
let port: number;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-replace-'));
  backup = join(folder, 'gateway.tar');
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  port = await freePort();
  const files = {
    tags: `tags:\n${VALUE_TAGS}`,
    reactions: `reactions:\n  - { name: note-it, on: threshold_reached, do: [{ run: [/bin/sh, -c, 'while [ ! -e ${folder}/valve ]; do sleep 0.1; done; echo "$TAGFERRY_VALUE" >> ${folder}/ran'] }] }\n`,
    env: { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook`, WEBHOOK_POLL: '0' },
  };
  a = new AgentProcess(sandbox.url, files);
  // The new gateway as delivered.
  b = new AgentProcess('http://127.0.0.1:9', {});
});
afterEach(async () => {
  await a.dispose();
  await b.dispose();
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

const ran = () => wholeLines(join(folder, 'ran'));
/** Both gateways are on one machine: folders and addresses in agent.env are those of the first one. */
const placeOf = (agent: AgentProcess) => ({
  STATE_DIR: agent.state,
  INGEST_LISTEN: `unix:${agent.ingest}`,
  OPS_LISTEN: `unix:${agent.ops}`,
});
const backUp = (...flags: string[]) => runVerb(['backup', backup, '--config', a.config, ...flags], placeOf(a));
const restore = (...flags: string[]): Promise<VerbOutcome> =>
  runVerb(['restore', backup, '--yes', '--config', b.config, ...flags], placeOf(b));

/** Unique event that the platform sends to the webhook. */
function sendEvent(value: number): void {
  const unit = { code: 'bar', symbol: 'bar' };
  sandbox.announcer.announce({
    type: 'threshold_reached',
    audience: () => true,
    content: () => ({
      asset: { id: 881, href: 'https://platform.example/v1/assets/881' },
      instrumentation: { id: 4711, href: 'https://platform.example/v1/instrumentations/4711', tag: 'FT-101' },
      data: { value, key: 'a', timestamp: '2026-11-21T00:00:00Z', unit },
      threshold: {
        type: 'high',
        name: 'High',
        value: 1,
        unit,
        thresholdable_type: 'Instrumentation',
        value_in_threshold_unit: null,
      },
    }),
  });
}

async function openEvents(): Promise<number> {
  const { text } = await a.call(join(a.state, 'control.sock'), '/events/ls', { body: '{}' });
  const { events } = JSON.parse(text) as { events: { state: string }[] };
  return events.filter(({ state }) => state === 'running').length;
}

/**
 * A runs, has delivered values, and has a backlog and an event with an unfinished reaction. Returns the stopped plant.
 */
async function fillA(): Promise<ValuePlant> {
  await a.start();
  await a.registered();
  const plant = new ValuePlant(a, 5);
  await a.until(() => sandbox.values.counts(881).stored > 10, 'values arrive');
  sendEvent(7);
  const running = async () => (await openEvents()) === 1;
  await a.until(running, 'the reaction has started');
  await sandbox.goOffline('refuse');
  await a.until(async () => (await a.metric('tagferry_buffer_values')) > 200, 'a backlog is buffered');
  await plant.stop();
  return plant;
}

describe('replaced gateway', () => {
  it('continues on new hardware with the same webhook, without missing or invented values', async () => {
    const plant = await fillA();
    const made = await backUp('--json');
    expect(`${made.status} ${made.stderr}`).toMatch(/^0 /);
    const { state } = JSON.parse(made.stdout) as { state: { values: number; events: number } };
    expect(state.values).toBeGreaterThan(200);
    expect(state.events).toBe(1);
    expect(statSync(backup).mode & 0o777).toBe(0o600);
    await a.end('SIGKILL');
    const name = gatewayName(a.state, 'broker');
    rmSync(a.state, { recursive: true });

    const restored = await restore();
    expect(`${restored.status} ${restored.stdout} ${restored.stderr}`).toMatch(/^0 [\s\S]*Restored the backup/);
    expect(gatewayName(b.state, 'broker')).toBe(name);
    await sandbox.goOnline();
    await b.start(placeOf(b));
    // Processes left by the reaction on A have ended.
    writeFileSync(join(folder, 'valve'), '');
    await b.until(async () => (await b.metric('tagferry_buffer_values')) === 0, 'the backlog is delivered');
    expect(plant.count(sandbox.values)).toMatchObject(NOTHING_WRONG);
    await b.until(() => ran().length === 1, 'the reaction runs');
    // The platform signs with the secret of A, and B accepts it.
    sendEvent(8);
    await b.until(() => ran().length === 2, 'the next event is accepted');
    expect(ran()).toEqual(['7', '8']);
    expect(sandbox.webhooks().length).toBe(1);
    expect(b.logged('webhook.secret_reset')).toEqual([]);
  });

  it('that runs alongside its replacement uses its own session, reposts its backlog and receives duplicate events', async () => {
    const plant = await fillA();
    expect((await backUp()).status).toBe(0);
    await a.end('SIGKILL');
    expect((await restore()).status).toBe(0);
    await sandbox.goOnline();
    await b.start(placeOf(b));
    writeFileSync(join(folder, 'valve'), '');
    await b.until(async () => (await b.metric('tagferry_buffer_values')) === 0, 'the backlog is delivered');
    await b.until(() => ran().length === 1, 'the reaction runs');

    const duplicates = () => sandbox.values.counts().duplicates;
    const before = duplicates();
    // On one machine, the listener needs another address; the platform continues to send to B.
    await a.start({ ...placeOf(a), WEBHOOK_LISTEN: `127.0.0.1:${await freePort()}` });
    await a.until(async () => (await a.metric('tagferry_buffer_values')) === 0, 'it delivers the same values');
    expect(duplicates() - before).toBeGreaterThan(200);
    expect(plant.count(sandbox.values)).toMatchObject(NOTHING_WRONG);
    await a.until(() => ran().length === 2, 'the unfinished reaction also runs on the original');
    expect(sandbox.tokens.counts().alive).toBe(2);
    expect(sandbox.webhooks().length).toBe(1);
    expect([...a.logged('webhook.secret_reset'), ...b.logged('webhook.secret_reset')]).toEqual([]);
    sendEvent(9);
    await b.until(() => ran().length === 3, 'the next event arrives at the current address');
    const asked = await runVerb(['events', 'catch-up', '--config', a.config], placeOf(a));
    expect(asked.status).toBe(0);
    await a.until(() => ran().length === 4, 'the other gateway finds the event in the deliveries list');
    expect(ran()).toEqual(['7', '7', '9', '9']);
    // A secret change by one gateway is unknown to the other, which rejects pushes until its restart.
    expect((await runVerb(['webhook', 'rotate-secret', '--config', a.config], placeOf(a))).status).toBe(0);
    sendEvent(10);
    await b.until(() => b.logged('webhook.rejected').length > 0, 'the signature is not the one that B knows');
  });
});

describe('tagferry restore', () => {
  it('changes nothing if the file is damaged', async () => {
    expect((await backUp()).status).toBe(0);
    const before = readFileSync(join(b.config, 'agent.env'), 'utf8');
    const damaged = readFileSync(backup);
    damaged[damaged.indexOf('PLATFORM_URL=http') + 1]! ^= 1;
    writeFileSync(backup, damaged);
    const { status, stderr } = await restore();
    expect(`${status} ${stderr}`).toMatch(/^1 .*damaged/);
    expect(readFileSync(join(b.config, 'agent.env'), 'utf8')).toBe(before);
    expect(existsSync(b.state)).toBe(false);
  });

  it('does not overwrite a running agent or buffered values without confirmation', async () => {
    expect((await backUp()).status).toBe(0);
    await sandbox.goOffline('refuse');
    b.write(sandbox.url, { tags: `tags:\n${VALUE_TAGS}` });
    await b.start();
    expect((await b.push([{ tag: 'T-881', key: 'a', value: 1 }])).status).toBe(204);
    const running = await restore('--lose-values');
    expect(`${running.status} ${running.stderr}`).toMatch(/^1 .*the agent is running[\s\S]*systemctl stop tagferry/);
    await b.end('SIGTERM');
    const held = await restore();
    expect(`${held.status} ${held.stderr}`).toMatch(/^1 .*1 value of this gateway in/);
    expect((await restore('--lose-values')).status).toBe(0);
    // A has never run, and has no buffer.
    expect(existsSync(join(b.state, 'buffer.db'))).toBe(false);
  });

  it('changes nothing with --look, and otherwise prompts on a terminal or requires --yes', async () => {
    expect((await backUp()).status).toBe(0);
    const looked = await runVerb(['restore', backup, '--look', '--config', b.config], placeOf(b));
    expect(looked).toMatchObject({ status: 0, stdout: expect.stringContaining('configuration only') });
    const asked = await runVerb(['restore', backup, '--config', b.config], placeOf(b));
    expect(`${asked.status} ${asked.stderr}`).toMatch(/^2 .*must be switched off permanently[\s\S]*--yes/);
    expect(existsSync(b.state)).toBe(false);
  });

  it('prevents agent startup after an interruption until it is repeated', async () => {
    writeFileSync(join(b.config, 'reactions.d'), 'a file in the place of a folder');
    mkdirSync(join(a.config, 'reactions.d'));
    writeFileSync(join(a.config, 'reactions.d/x.yaml'), 'reactions: []\n');
    expect((await backUp()).status).toBe(0);
    const broken = await restore();
    expect(`${broken.status} ${broken.stderr}`).toMatch(/^1 /);
    rmSync(join(b.config, 'reactions.d'));
    b.launch(placeOf(b));
    expect(await b.ended()).toBe(78);
    expect(b.output).toContain('the restore started at');
    expect(b.output).toContain('run `tagferry restore` again');
    expect((await restore()).status).toBe(0);
    await b.start(placeOf(b));
  });
});

describe('tagferry backup', () => {
  it('creates a standard archive that contains drop-ins and lists external files', async () => {
    mkdirSync(join(a.config, 'agent.env.d'));
    writeFileSync(join(a.config, 'agent.env.d/10-site.env'), `POST_INTERVAL=3s\nPLATFORM_CA=${folder}/ca.pem\n`);
    writeFileSync(join(folder, 'ca.pem'), 'not looked into');
    const { status, stdout } = await backUp('--json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ left_out: [{ file: `${folder}/ca.pem` }] });
    const names = execFileSync('tar', ['tf', backup], { encoding: 'utf8' }).trim().split('\n');
    expect(names).toEqual(
      expect.arrayContaining(['config/agent.env', 'config/agent.env.d/10-site.env', 'config/tags.yaml']),
    );
    const out = join(folder, 'out');
    mkdirSync(out);
    execFileSync('sh', ['-c', `tar xf ${backup} && sha256sum --quiet -c SHA256SUMS`], { cwd: out });
    // The next backup does not overwrite it.
    expect(await backUp()).toMatchObject({ status: 1, stderr: expect.stringContaining('--overwrite') });
    expect((await backUp('--overwrite')).status).toBe(0);
    expect((await restore()).status).toBe(0);
    expect(readFileSync(join(b.config, 'agent.env.d/10-site.env'), 'utf8')).toContain('POST_INTERVAL=3s');
  });

  it('can exclude secrets, which restore then lists as missing', async () => {
    await a.start();
    await a.registered();
    writeFileSync(join(a.config, 'broker-password'), 'hunter2\n');
    writeFileSync(
      join(a.config, 'tags.yaml'),
      `tags:\n${VALUE_TAGS}sources: { s: { mqtt: "mqtt://gw:hunter2@127.0.0.1" } }\n`,
    );
    const { status, stdout } = await backUp('--without-secrets');
    expect(`${status} ${stdout}`).toMatch(
      /^0 [\s\S]*broker-password \(can contain a secret\)[\s\S]*Secrets are not included/,
    );
    const { secret } = JSON.parse(a.file('webhook.json')) as { secret: string };
    await a.end('SIGTERM');
    const bytes = readFileSync(backup, 'latin1');
    for (const one of [secret, 'hunter2', SANDBOX_CREDENTIALS.clientSecret, SANDBOX_CREDENTIALS.technicalPassword]) {
      expect(bytes).not.toContain(one);
    }
    const restored = await restore();
    expect(`${restored.status} ${restored.stdout}`).toMatch(/^78 [\s\S]*CLIENT_SECRET is missing/);
  });

  it('waits until values in a set-aside file are recovered, and then contains all values', async () => {
    await sandbox.goOffline('refuse');
    const path = fillBuffer(a.state, 40_000);
    // State left by a start that was killed at the beginning of a rebuild, with the old file temporarily unreadable.
    const aside = `${path}.corrupt-20261121T000000Z`;
    renameSync(path, aside);
    const into = openDatabase(path);
    salvage(aside, into, { aside, copy: new SeriesCopy(path) });
    into.close();
    const orders = join(folder, 'orders');
    writeFileSync(orders, `fail_read ${statSync(aside).ino} 0 1000000000\n`);
    const layer = { LD_PRELOAD: compileDiskLayer(), DISK_LAYER_PATH: a.state, DISK_LAYER_ORDERS: orders };
    const refused = await runVerb(['backup', backup, '--config', a.config], { ...placeOf(a), ...layer });
    expect(`${refused.status} ${refused.stderr}`).toMatch(/^1 [\s\S]*is rebuilding the buffer[\s\S]*store\.rebuilt/);
    expect(existsSync(backup)).toBe(false);
    await a.start();
    await a.until(() => a.logged('store.rebuilt').length > 0, 'it is rebuilt');
    const made = await backUp('--json');
    expect(`${made.status} ${made.stderr}`).toMatch(/^0 /);
    expect(JSON.parse(made.stdout)).toMatchObject({ state: { values: 40_000 } });
  });

  it('writes to a pipe if no file is specified', async () => {
    const { status, stdout, stderr } = await runVerb(['backup', '-', '--config', a.config], placeOf(a));
    expect(`${status} ${stderr}`).toMatch(/^0 [\s\S]*contains unencrypted secrets/);
    expect(stdout.slice(0, 13)).toBe('manifest.json');
  });
});
