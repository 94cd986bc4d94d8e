// Requires: prlimit
import { createHmac } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { Platform } from './harness/platform.ts';
import { runVerb, runVerbIn } from './harness/verb.ts';

/** Nothing connects to this address: the tests deliver events at the socket of the listener. */
const WEBHOOK_URL = 'http://127.0.0.1:9/webhook';
const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: {} } }\n';

let platform: Platform;
let agent: AgentProcess;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS, env: { WEBHOOK_URL, WEBHOOK_POLL: '0' } });
});
afterEach(async () => {
  await agent.dispose();
  await platform.stop();
});

const FIRST_MS = Date.UTC(2026, 10, 21);
const valueAt = (timestampMs: number) => (timestampMs - FIRST_MS) / 8;
const valuesAt = (times: readonly number[]) =>
  times.map((timestampMs) => ({ timestampMs, value: valueAt(timestampMs) }));
async function pushAt(timestampMs: number): Promise<number> {
  const pushed = { tag: 'FT-101', key: 'flow', value: valueAt(timestampMs), timestamp: timestampMs };
  return (await agent.push([pushed])).status;
}
const isEmpty = async (one: AgentProcess) => (await one.metric('tagferry_buffer_values')) === 0;

async function deliver(body: string): Promise<number> {
  const [webhook] = platform.webhooks();
  const signature = `sha256=${createHmac('sha256', webhook!.secret).update(body).digest('hex')}`;
  const headers = { 'X-Hub-Signature-Sha256': signature };
  return (await agent.call(agent.webhook, '/webhook', { body, headers })).status;
}

/** Pushes value after value, and records which were offered and which were acknowledged. */
class Pusher {
  readonly offered: number[] = [];
  readonly acknowledged: number[] = [];
  #running = true;
  readonly #done = this.#push();

  async #push(): Promise<void> {
    while (this.#running) {
      const timestampMs = FIRST_MS + this.offered.length;
      this.offered.push(timestampMs);
      if ((await pushAt(timestampMs).catch(() => 0)) === 204) this.acknowledged.push(timestampMs);
    }
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#done;
  }
}

describe('backup of a running agent', () => {
  let replacement: AgentProcess;

  beforeEach(() => {
    replacement = new AgentProcess('http://127.0.0.1:9');
    mkdirSync(join(replacement.config, 'agent.env.d'));
    // Both gateways are on this machine, and the restored agent.env contains the addresses of the first one.
    const own = [
      `STATE_DIR=${replacement.state}`,
      `INGEST_LISTEN=unix:${replacement.ingest}`,
      `OPS_LISTEN=unix:${replacement.ops}`,
      `WEBHOOK_LISTEN=unix:${replacement.webhook}`,
    ];
    writeFileSync(join(replacement.config, 'agent.env.d/own.env'), `${own.join('\n')}\n`, { mode: 0o600 });
  });
  afterEach(() => replacement.dispose());

  it('continues in a new folder with its values, events and webhook, and loses and invents nothing', async () => {
    await agent.start();
    await agent.registered();
    const pusher = new Pusher();
    await agent.until(() => platform.counts(881).stored > 20, 'values arrive');
    await platform.fail();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) > 100, 'a backlog is buffered');
    const event = {
      event_type: 'asset_updated',
      occurred_at: '2026-11-21T00:00:00.000Z',
      content: { asset: { id: 881 } },
    };
    expect(await deliver(JSON.stringify(event))).toBe(204);
    const before = pusher.acknowledged.length;
    const file = join(agent.folder, 'gateway.tar');
    expect(await runVerb(agent, 'backup', file)).toMatchObject({ status: 0, stderr: '' });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    await agent.end('SIGKILL');
    await pusher.stop();
    const webhooks = platform.webhooks().map(({ id, secret }) => [id, secret]);
    // The replaced machine and its disk are gone.
    rmSync(agent.state, { recursive: true });

    const restored = await runVerb(replacement, 'restore', file, '--yes');
    expect(restored).toMatchObject({ status: 0 });
    await platform.recover();
    await replacement.start();
    await replacement.until(() => isEmpty(replacement), 'the backlog is delivered');
    const { missing } = platform.compare(881, 'flow', valuesAt(pusher.acknowledged.slice(0, before)));
    const { invented, different } = platform.compare(881, 'flow', valuesAt(pusher.offered));
    expect({ missing, invented, different }).toEqual({ missing: [], invented: [], different: [] });
    expect(before).toBeGreaterThan(100);
    const events = JSON.parse((await runVerb(replacement, 'events', 'ls', '--json')).stdout) as object[];
    expect(events).toEqual([expect.objectContaining({ event_type: 'asset_updated' })]);
    expect(platform.webhooks().map(({ id, secret }) => [id, secret])).toEqual(webhooks);
  });

  it('is not restored into a folder with values that are not yet delivered', async () => {
    await agent.start();
    const file = join(agent.folder, 'gateway.tar');
    expect(await runVerb(agent, 'backup', file)).toMatchObject({ status: 0 });
    // An agent must not lose its configuration and buffer while it is running either.
    expect(await runVerb(agent, 'restore', file, '--yes')).toMatchObject({ status: 1 });
    await agent.end('SIGTERM');
    await agent.start();
    await platform.fail();
    expect(await pushAt(FIRST_MS)).toBe(204);
    await agent.end('SIGKILL');
    expect(await runVerb(agent, 'restore', file, '--yes')).toMatchObject({ status: 1 });
    await platform.recover();
    await agent.start();
    await agent.until(() => platform.counts(881).stored === 1, 'the value arrives');
  });
});

describe('command that replaces a file', () => {
  it('fails and leaves the file unchanged if the disk has no room for all of it', async () => {
    await agent.start();
    expect(await runVerb(agent, 'assets', '--schema')).toMatchObject({ status: 0 });
    const path = join(agent.config, 'schema/tags.schema.json');
    const before = readFileSync(path, 'utf8');
    expect(before.length).toBeGreaterThan(20_000);
    // Like a full disk, the limit ends a write after a part of the file.
    const limited = await runVerbIn(['prlimit', '--fsize=10000'], agent, 'assets', '--schema');
    expect(limited).toMatchObject({ status: 1 });
    expect(limited.stderr).toContain(`cannot write ${path}`);
    expect(readFileSync(path, 'utf8')).toBe(before);
  });

  it.each([
    ['setup', ['--no-login', '--answers', 'answers']],
    ['restore', ['backup.tar', '--yes']],
  ] as const)(
    'leaves settings and tags unchanged if the disk has no room for all of a file: %s',
    async (verb, args) => {
      const write = (name: string, text: string) => writeFileSync(join(agent.config, name), text, { mode: 0o600 });
      const read = () => ['agent.env', 'tags.yaml'].map((name) => readFileSync(join(agent.config, name), 'utf8'));
      const original = read();
      write('answers', 'CLIENT_ID=replaced\nFIRST_TAG=FT-102\nFIRST_TAG_ASSET=882\n');
      expect(await runVerb(agent, 'backup', 'backup.tar')).toMatchObject({ status: 0 });
      if (verb === 'restore')
        for (const name of ['agent.env', 'tags.yaml']) write(name, `${TAGS.replace('tags', '#')}\n`);
      const before = read();
      const limited = await runVerbIn(['prlimit', '--fsize=200'], agent, verb, ...args);
      expect(limited).toMatchObject({ status: 1 });
      expect(limited.stderr).toContain('cannot write');
      expect(read()).toEqual(before);
      expect(await runVerb(agent, verb, ...args)).toMatchObject({ status: 0 });
      if (verb === 'restore') expect(read()).toEqual(original);
      else expect(read().join()).toMatch(/CLIENT_ID=replaced.*FT-102/s);
    },
  );
});

describe('buffer export', () => {
  /** Timestamps and values in both formats. */
  async function exported(): Promise<(readonly [number, number])[][]> {
    const ndjson = await runVerb(agent, 'buffer', 'export', '--format', 'ndjson');
    const csv = await runVerb(agent, 'buffer', 'export');
    expect([ndjson.status, csv.status]).toEqual([0, 0]);
    const [header, ...rows] = csv.stdout.trim().split('\n');
    const columns = header!.split(',');
    const cell = (row: string, name: string) => row.split(',')[columns.indexOf(name)]!;
    const objects = ndjson.stdout.trim().split('\n');
    const lines = objects.map((line) => JSON.parse(line) as { timestamp: string; value: number });
    return [
      lines.map(({ timestamp, value }) => [Date.parse(timestamp), value] as const),
      rows.map((row) => [Date.parse(cell(row, 'timestamp')), Number(cell(row, 'value'))] as const),
    ].map((values) => values.sort(([one], [other]) => one - other));
  }

  it('contains each buffered value once, from a running and from a stopped agent', async () => {
    await agent.start();
    const times = Array.from({ length: 60 }, (_, index) => FIRST_MS + index);
    await platform.fail();
    for (const time of times.slice(0, 30)) expect(await pushAt(time)).toBe(204);
    await agent.end('SIGKILL');
    await agent.start();
    for (const time of times.slice(30)) expect(await pushAt(time)).toBe(204);
    const expected = times.map((time) => [time, valueAt(time)]);
    expect(await exported()).toEqual([expected, expected]);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(await exported()).toEqual([expected, expected]);
  });
});

describe('decommissioning', () => {
  it('changes nothing if values remain, and otherwise drains the buffer and removes the gateway', async () => {
    await agent.start();
    await agent.registered();
    const fault = platform.addFault({ method: 'POST', path: '/v1/assets/*', status: 503 });
    for (let i = 0; i < 5; i++) expect(await pushAt(FIRST_MS + i)).toBe(204);
    expect(await runVerb(agent, 'decommission', '--yes', '--timeout', '300ms')).toMatchObject({ status: 1 });
    expect(platform.webhooks()).toHaveLength(1);
    expect(platform.tokens().alive).toBe(1);
    expect(await pushAt(FIRST_MS + 5)).toBe(204);

    platform.removeFault(fault);
    expect(await runVerb(agent, 'decommission', '--yes')).toMatchObject({ status: 0 });
    expect(await agent.ended()).toBe(78);
    expect(agent.logged('decommission.done')).toHaveLength(1);
    expect(platform.counts(881)).toMatchObject({ stored: 6 });
    expect(platform.webhooks()).toEqual([]);
    expect(platform.tokens().alive).toBe(0);
    agent.launch();
    expect(await agent.ended()).toBe(78);
    expect(await runVerb(agent, 'check')).toMatchObject({ status: 78 });
  });
});
