import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { SIGNATURE_SHA256_HEADER } from '../../../src/contract/webhooks.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

/**
 * One session with as many faults as possible at the most verbose level. The log is then compared with an operator's
 * expectations, and searched for secrets.
 */
const TAGS = `
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }
  FT-102: { asset: 882, instrumentation: 4712, values: { flow: { unit: 12 } } }
  PT-201: { asset: 883, values: { pressure: { unit: 12 } } }
`;
const REACTIONS = `
reactions:
  - name: print-it
    on: "*"
    do: [{ run: [cat] }]
  - name: broken-pump
    on: threshold_reached
    do: [{ run: [/bin/false] }]
`;
const INGEST_TOKEN = 'ingest-token-of-the-site';
const { clientSecret, technicalPassword } = SANDBOX_CREDENTIALS;

type Line = Record<string, unknown> & { level: string; event: string };

let sandbox: Sandbox;
let agent: AgentProcess;
/** All tokens and webhook secrets that were ever valid. */
const secrets = new Set<string>();

const lines = (): Line[] =>
  agent.output.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as Line] : []));
const about = (member: string, value: unknown) => lines().filter((line) => line[member] === value);
const eventsOf = (found: readonly Line[]) => found.map((line) => line.event);

const HEADERS = { 'Content-Type': 'application/json', Authorization: `Bearer ${INGEST_TOKEN}` };

async function push(tag: string, key: string, ...values: number[]): Promise<number> {
  const body = JSON.stringify({ values: values.map((value, i) => ({ tag, key, value, timestamp: Date.now() + i })) });
  return (await agent.call(agent.ingest, '/v1/values', { body, headers: HEADERS })).status;
}

function gatherSecrets(): void {
  for (const name of ['session.json', 'webhook.json']) {
    for (const [, text] of agent
      .file(name)
      .matchAll(/"(?:accessToken|refreshToken|secret|previous)":\s*"([^"]{8,})"/g)) {
      secrets.add(text!);
    }
  }
}

/** The platform returns this response until one post has received it and the log contains `event`. Then it recovers. */
async function meet(
  status: number,
  event: string,
  more: { retryAfter?: number; asset?: number; tag?: string; key?: string } = {},
): Promise<void> {
  const { tag = 'FT-101', key = 'flow', ...fault } = more;
  const before = agent.logged(event).length;
  const id = sandbox.faults.add({ method: 'POST', path: '/v1/assets/*', status, ...fault });
  for (let value = 0; agent.logged(event).length === before; value++) {
    await push(tag, key, value);
    await new Promise((resolve) => setTimeout(resolve, 50));
    if (value > 400) throw new Error(`${status}: ${event} never came\n${agent.output.slice(-3000)}`);
  }
  sandbox.faults.remove(id);
  agent.signal('SIGHUP');
  await agent.until(
    async () => ((await agent.status()).uplink as { state: string }).state === 'online',
    `online after ${status}`,
  );
}

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  const env = {
    LOG_LEVEL: 'trace',
    TECHNICAL_USER_ID: '5',
    INGEST_TOKEN,
    WEBHOOK_LISTEN: `127.0.0.1:${port}`,
    WEBHOOK_URL: `http://127.0.0.1:${port}/webhook`,
  };
  const files = { tags: TAGS, reactions: REACTIONS, env };
  agent = new AgentProcess(sandbox.url, files);
  await agent.start();
  await agent.registered();
  gatherSecrets();
  // A value that the platform rejects among accepted values.
  sandbox.faults.poison({ asset: 882, value: 666 });
  await push('FT-102', 'flow', 1, 666, 3);
  for (let value = 0; agent.logged('uplink.quarantined').length === 0; value++) {
    await push('FT-101', 'flow', 1 + (value % 5));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  // Events: one whose reaction fails, and one that contains the user whose permission was revoked.
  sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 50, key: 'flow' });
  await push('FT-101', 'flow', 99);
  await agent.until(() => agent.logged('reaction.failed').length > 0, 'a reaction has failed');
  sandbox.revokePermission({ type: 'Asset', id: 883 });
  await agent.until(() => agent.logged('access.held').length > 0, 'an asset is held');
  await agent.until(
    () => agent.logged('reaction.event').some((line) => line.state === 'done'),
    'an event is completed',
  );
  sandbox.grantPermission({ type: 'Asset', id: 883 });
  // A client sends a wrong signature and pushes invalid data.
  const forged = { 'Content-Type': 'application/json', [SIGNATURE_SHA256_HEADER]: `sha256=${'0'.repeat(64)}` };
  await fetch(`http://127.0.0.1:${port}/webhook`, { method: 'POST', headers: forged, body: '{}' });
  expect((await agent.call(agent.ingest, '/v1/values', { body: '{', headers: HEADERS })).status).toBe(400);
  await meet(503, 'uplink.asset_pauses');
  await meet(429, 'uplink.rest', { retryAfter: 1 });
  // The platform becomes unavailable and recovers; tokens expire; credentials are rejected, then corrected.
  await sandbox.goOffline();
  await push('FT-101', 'flow', 5);
  await agent.until(async () => ((await agent.status()).uplink as { state: string }).state === 'away', 'away');
  await sandbox.goOnline();
  agent.signal('SIGHUP');
  sandbox.tokens.expireAll(true);
  await push('FT-101', 'flow', 6);
  await agent.until(() => agent.logged('session.token_refused').length > 0, 'a token is rejected');
  await agent.until(() => agent.logged('session.valid').length > 1, 'a new session exists');
  gatherSecrets();
  await meet(403, 'access.held', { tag: 'PT-201', key: 'pressure', asset: 883 });
  // The quota is exhausted: posts are paused.
  sandbox.faults.add({ method: 'POST', path: '/v1/assets/*', status: 402 });
  await push('FT-101', 'flow', 8);
  await agent.until(() => agent.logged('uplink.quota').length > 0, 'the quota is exhausted');
  // Reloads a file with an error, then a different log level.
  agent.write(sandbox.url, { ...files, env: { ...env, LOG_LEVEL: 'loud' } });
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.refused').length > 0, 'a configuration is rejected');
  agent.write(sandbox.url, { ...files, env: { ...env, LOG_LEVEL: 'warn' } });
  const reloads = agent.logged('config.reloaded').length;
  agent.signal('SIGHUP');
  for (const { secret } of sandbox.webhooks()) secrets.add(secret);
  await agent.until(async () => {
    const before = lines().length;
    await push('FT-101', 'flow', 7);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return lines().length === before;
  }, 'nothing is logged below warn');
  expect(agent.logged('config.reloaded')).toHaveLength(reloads);
  agent.write(sandbox.url, files);
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length > reloads, 'all values are delivered again');
  expect(await agent.end('SIGTERM')).toBe(0);
}, 300_000);
afterAll(async () => {
  await agent?.dispose();
  await sandbox?.stop();
});

describe('agent log from a session with many faults', () => {
  it('contains no secrets or tokens at any level', () => {
    expect(secrets.size).toBeGreaterThanOrEqual(4);
    for (const secret of [clientSecret, technicalPassword, INGEST_TOKEN, ...secrets])
      expect(agent.output).not.toContain(secret);
    expect(agent.output).not.toMatch(/bearer |basic [a-z0-9+/]{12}/i);
  });

  it('contains no user IDs at info level and above, even if an event does', () => {
    const isQuiet = ({ level }: Line) => level === 'debug' || level === 'trace';
    const quiet = lines().filter(isQuiet);
    const loud = lines().filter((line) => !isQuiet(line));
    const named = JSON.stringify(quiet.filter(({ event }) => event === 'reaction.output'));
    const people = new Set([...named.matchAll(/users\/\d+/g)].map(([person]) => person));
    expect(people.size).toBeGreaterThan(0);
    for (const person of people) expect(JSON.stringify(loud)).not.toContain(person);
    // Event and post contents are not logged either.
    expect(JSON.stringify(loud)).not.toMatch(/serial_number|"content"|[\w.+-]+@[\w-]+\.\w+/);
  });

  it('has a timestamp and a documented event code on each line', () => {
    const page = readFileSync(join(import.meta.dirname, '../../../docs/reference/logs.md'), 'utf8');
    for (const line of lines()) {
      expect(line.event, JSON.stringify(line)).toBeTypeOf('string');
      expect(page).toContain(`\`${line.event}\``);
      expect(line.msg, JSON.stringify(line)).toMatch(/\w{3}/);
      expect(Date.parse(String(line.time))).not.toBeNaN();
    }
    expect(new Set(eventsOf(lines())).size).toBeGreaterThan(35);
  });

  it('traces a batch by its ID: accepted, posted, rejected, split, settled, quarantined', () => {
    const [quarantined] = agent.logged('uplink.quarantined');
    const way = about('batch', quarantined!.batch);
    const events = eventsOf(way);
    expect(events[0]).toBe('uplink.taken');
    expect(events.slice(0, 4)).toEqual(['uplink.taken', 'uplink.posted', 'uplink.refused', 'uplink.divided']);
    expect(events.filter((event) => event === 'uplink.settled')).toHaveLength(2);
    expect(events.at(-1)).toBe('uplink.quarantined');
    expect(new Set(way.map((line) => line.asset))).toEqual(new Set([882]));
    // Every part of the batch has one outcome.
    const ended = way.filter(({ event }) => event === 'uplink.settled' || event === 'uplink.quarantined');
    expect(ended.reduce((sum, line) => sum + Number(line.values ?? 1), 0)).toBe(3);
  });

  it('reports that the values in a batch are pending again after an outage', () => {
    const away = agent.logged('uplink.away').find((line) => line.code === 'platform.connection_refused');
    const way = eventsOf(about('batch', away!.batch));
    expect(way).toEqual(['uplink.taken', 'uplink.posted', 'uplink.away', 'uplink.later']);
  });

  it('traces an event by its digest: received, reaction, action, completed', () => {
    const [received] = agent.logged('webhook.received').filter((line) => line.eventType === 'asset_disappeared');
    const way = about('digest', received!.digest);
    expect(eventsOf(way)).toEqual([
      'webhook.received',
      'reaction.command',
      'reaction.output',
      'reaction.action',
      'reaction.done',
      'reaction.event',
    ]);
    expect(eventsOf(way.filter(({ level }) => level === 'info'))).toEqual([
      'webhook.received',
      'reaction.command',
      'reaction.done',
    ]);
    expect(new Set(way.slice(1).map((line) => line.inboxId)).size).toBe(1);
    expect(way.at(-1)).toMatchObject({ state: 'done' });
  });

  it('reports each configuration problem with its line number while the previous configuration stays active', () => {
    const [refused] = agent.logged('config.refused');
    expect(refused!.problems).toEqual([expect.stringMatching(/agent\.env:\d+:\d+: LOG_LEVEL "loud" .*debug/)]);
  });

  it('summarizes repeated messages', () => {
    const posts = lines().filter(({ event, meaning }) => event === 'uplink.posted' && meaning !== 'delivered');
    const loud = lines().filter(
      ({ event, level }) => event.startsWith('uplink.') && (level === 'warn' || level === 'error'),
    );
    expect(posts.length).toBeGreaterThan(0);
    expect(loud.length).toBeLessThan(posts.length + 5);
  });
});
