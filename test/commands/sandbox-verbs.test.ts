import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Command, CommanderError } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { define } from '../../src/sandbox/program/verbs.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Receiver } from '../sandbox/receiver.ts';
import { Visitor } from '../sandbox/visitor.ts';
import { runVerb } from './verb-run.ts';

let sandbox: Sandbox;
let receiver: Receiver;
let visitor: Visitor;
let out = '';

beforeEach(async () => {
  sandbox = new Sandbox();
  receiver = new Receiver();
  await sandbox.start();
  await receiver.start();
  visitor = await Visitor.signedIn(sandbox);
  out = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
});
afterEach(async () => {
  vi.restoreAllMocks();
  await sandbox.stop();
  await receiver.stop();
});

/** Runs a verb in this process and gives what it printed. */
async function run(...args: string[]): Promise<string> {
  out = '';
  const program = new Command('tagferry').exitOverride().configureOutput({ writeErr: () => {} });
  define(program);
  await program.parseAsync(['sandbox', ...args, '--url', sandbox.url], { from: 'user' });
  return out;
}
const json = async (...args: string[]) => JSON.parse(await run(...args, '--json'));
const register = (...event_types: readonly string[]) =>
  visitor.call('POST', '/v1/client_applications/3/webhooks', { url: receiver.url, event_types });

/** What a refused verb says, and its hint. */
async function refusal(...args: string[]): Promise<string> {
  try {
    await run(...args);
  } catch (error) {
    const { code, message, hint } = error as Error & { code: string; hint?: string };
    return `${code}: ${message} ${hint ?? ''}`;
  }
  throw new Error(`${args.join(' ')} was not refused`);
}

describe('tagferry sandbox cause', () => {
  it.each(EVENT_TYPES)('%s reaches a webhook', async (type) => {
    await register(type);
    expect(await json('cause', type)).toMatchObject({ event_type: type, deliveries: 1 });
    await vi.waitFor(() => expect(receiver.types()).toContain(type));
  });

  it('takes objects by name, values, units, attributes and how often', async () => {
    await register('threshold_reached', 'asset_updated', 'asset_values_created');
    const text = await run('cause', 'threshold_reached', 'FT-102', '--value', '31.5', '--key', 'temperature');
    expect(text).toBe('threshold_reached (instrumentation 4712), sent to 1 webhook\n');
    await run(
      'cause',
      'asset_updated',
      'asset/SN-000882',
      '--set',
      'description=Inlet, new',
      '--set',
      'serial_number=77',
    );
    await vi.waitFor(() => expect(receiver.types()).toContain('asset_updated'));
    const updated = receiver.received.find(({ event }) => event.event_type === 'asset_updated')!.event;
    expect(updated.content.asset).toMatchObject({ id: 882, description: 'Inlet, new', serial_number: '77' });
    expect(await json('cause', 'asset_values_created', '881', '--value', '5', '--times', '3')).toHaveLength(3);
    expect(sandbox.values.last(881, 'flow')?.value).toBe(5);
  });

  it('without a type lists all of them with their objects and options', async () => {
    const listed = await json('cause');
    expect(listed.map((one: { event_type: string }) => one.event_type)).toEqual([...EVENT_TYPES]);
    expect(await run('cause')).toMatch(/threshold_reached +instrumentations +--key --value --unit/);
  });

  it('names the nearest type, object and what a type takes', async () => {
    expect(await refusal('cause', 'treshold_reached')).toMatch(/^usage: .*Did you mean threshold_reached\?/);
    expect(await refusal('cause', 'threshold_reached', 'FT-1O1')).toMatch(/^usage: .*Did you mean FT-101\?/);
    expect(await refusal('cause', 'asset_updated', '--key', 'x')).toMatch(/^usage: .*takes --status, --set/);
    expect(await refusal('cause', 'asset_updated', '999')).toMatch(/^sandbox\.refused: assets 999 was not found/);
    expect(await refusal('cause', 'asset_appeared', '881', '882')).toMatch(/^usage: /);
  });
});

describe('tagferry sandbox fault', () => {
  it('sets faults that happen, lists them and takes them away', async () => {
    const { id } = await json('fault', 'status', '429', '--retry-after', '7', '--asset', '881', '--times', '1');
    expect((await json('fault')).faults).toMatchObject([{ id, status: 429, asset: 881 }]);
    const reply = await visitor.post(881, 'flow', [{ value: 1 }]);
    expect([reply.status, reply.headers.get('retry-after')]).toEqual([429, '7']);
    expect((await visitor.post(881, 'flow', [{ value: 1 }])).status).toBe(204);
    await run('fault', 'latency', '1ms', '--path', '/v1/*');
    await run('fault', 'drop', 'after', '--every', '5');
    expect((await json('fault')).faults).toHaveLength(2);
    await run('fault', 'rm', '2');
    expect((await json('fault')).faults).toMatchObject([{ drop: 'after', every: 5 }]);
    await run('fault', 'clear');
    expect(await run('fault')).toBe('No fault is set.\n');
  });

  it('expires tokens, refuses values, limits rates and takes the platform away', async () => {
    await run('fault', 'poison', '--key', 'p', '--value', '66');
    expect((await visitor.post(881, 'p', [{ value: 66 }])).status).toBe(400);
    await run('fault', 'expire');
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(401);
    visitor.token = (await visitor.login()).body.access_token;
    await run('fault', 'rate', '1');
    await visitor.get('/v1/client_applications/current');
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(429);
    await run('fault', 'offline', '--mode', '503');
    await vi.waitFor(async () => expect((await visitor.login()).status).toBe(503));
    await run('fault', 'online');
    expect((await visitor.login()).status).toBe(200);
    expect(await refusal('fault', 'offline')).toMatch(/^sandbox\.refused: forMs is needed/);
  });

  it('names the nearest fault and refuses what is none', async () => {
    expect(await refusal('fault', 'ofline')).toMatch(/^usage: .*Did you mean offline\?/);
    expect(await refusal('fault', 'drop', 'sometimes')).toMatch(/^usage: /);
    expect(await refusal('fault', 'latency', '500')).toMatch(/^usage: .*500ms/);
    expect(await refusal('fault', 'status', '42')).toMatch(/^sandbox\.refused: status is a status from 200 to 599/);
  });
});

describe('tagferry sandbox ls, make, destroy, grant, take', () => {
  it('show kinds, records and one record, by their names', async () => {
    expect(await json('ls')).toContainEqual({ kind: 'assets', count: 20 });
    expect(await json('ls', 'asset')).toHaveLength(20);
    expect(await json('ls', 'EDM::EdgeDevice', 'ED-0001')).toMatchObject({ id: 30 });
    expect(await json('ls', 'owners')).toEqual([{ user: 6, permitable: { type: 'Asset', id: 881 } }]);
    expect(await run('ls', 'owners')).toMatch(/^user +owns\n6 +Asset\/881\n/);
    expect(await run('ls', 'inheritance')).toMatch(/Node +Asset +under the node/);
    expect(await run('ls', 'api_keys')).not.toContain('sandbox-secret');
    expect(await refusal('ls', 'asets')).toMatch(/^usage: .*Did you mean assets\?/);
  });

  it('make objects with an id of their own or a chosen one, and destroy them', async () => {
    await register('asset_appeared');
    const made = await json('make', 'asset', 'serial_number=123', 'parent=910');
    expect(made).toMatchObject({ serial_number: '123', parent: 910 });
    // A child of the skid is seen by inheritance.
    await vi.waitFor(() => expect(receiver.types()).toEqual(['asset_appeared']));
    expect(await json('make', 'purchase-order/900', 'name=PO-2')).toEqual({ id: 900, name: 'PO-2' });
    expect(await json('make', 'instrumentation', 'tag=XT-1', 'assets=881,882')).toMatchObject({ assets: [881, 882] });
    expect(await run('destroy', 'asset', '123')).toBe(`asset ${made.id} is destroyed.\n`);
  });

  it('give and take permissions of anyone', async () => {
    await run('grant', 'Asset/920', 'can_read', '--user', 'ben@sandbox.example');
    expect(sandbox.permissions.may(7, 'can_read', { type: 'Asset', id: 920 })).toBe(true);
    await run('take', 'asset/920', '--user', '7');
    expect(sandbox.permissions.may(7, 'can_read', { type: 'Asset', id: 920 })).toBe(false);
  });
});

describe('tagferry sandbox clock, sent, resend, threshold, status', () => {
  it('move and hasten the clock', async () => {
    const before = sandbox.clock.wallMs();
    const { time } = await json('clock', 'advance', '11m');
    expect(Date.parse(time) - before).toBeGreaterThanOrEqual(660_000);
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(401);
    await run('clock', 'speed', '60');
    expect(sandbox.clock.speed).toBe(60);
    expect(await refusal('clock', 'advance')).toMatch(/^usage: /);
    expect(await refusal('clock', 'speed', '0')).toMatch(/^usage: /);
  });

  it('show what was sent, and send it again', async () => {
    receiver.status = 500;
    await register('asset_updated');
    await run('cause', 'asset_updated');
    await vi.waitFor(async () => expect((await json('sent'))[0]).toMatchObject({ attempts: 1, lastAnswer: 500 }));
    expect(await run('sent')).toMatch(/asset_updated +pending +1 +500 +in /);
    receiver.status = 204;
    sandbox.clock.advance(60_000);
    await vi.waitFor(async () => expect(await json('sent', '--status', 'delivered')).toHaveLength(1));
    expect(await json('resend', '1')).toEqual({ started: 1 });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(3));
    expect(await json('status')).toMatchObject({ webhooks: 1, speed: 1, outage: null });
  });

  it('set, list and remove thresholds', async () => {
    const { id } = await json('threshold', 'set', 'FT-101', 'low', '5', '--key', 'flow', '--name', 'Dry');
    expect(await run('threshold')).toMatch(new RegExp(`${id} +Instrumentation 4711 +flow +low 5 +Dry`));
    await run('threshold', 'rm', String(id));
    expect(await run('threshold')).toBe('There are no thresholds.\n');
    expect(await refusal('threshold', 'set', 'FT-101', 'sideways', '5')).toMatch(/^sandbox\.refused: type is high/);
  });

  it.each([
    ['systems', 'system', 'System'],
    ['recipes', 'recipe', 'Recipe'],
  ])('set thresholds of %s too, which values of the assets that they name reach', async (kind, word, type) => {
    await visitor.call('PUT', `/sandbox/objects/${kind}/36`, { name: 'one' });
    await register('threshold_reached');
    await run('threshold', 'set', `${word}/36`, 'high', '20', '--key', 'flow', '--assets', '881,882');
    expect(await run('threshold')).toMatch(new RegExp(`${type} 36 +flow +high 20`));
    await visitor.post(882, 'flow', [{ timestamp: '2026-11-22T00:00:00Z', value: 25 }]);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1));
    expect(receiver.received[0]!.event).toMatchObject({
      event_type: 'threshold_reached',
      content: { asset: { id: 882 }, threshold: { thresholdable_type: type } },
    });
  });
});

describe('exit codes of tagferry sandbox', () => {
  it('are 0, 1 where no sandbox answers or it refuses, and 2 for what cannot be understood', async () => {
    const at = ['--url', sandbox.url];
    expect((await runVerb(['sandbox', 'status', ...at])).status).toBe(0);
    const absent = await runVerb(['sandbox', 'status', '--url', 'http://127.0.0.1:9']);
    expect([absent.status, absent.stderr]).toEqual([1, expect.stringContaining('Start one with `tagferry sandbox`')]);
    const other = createServer((_request, response) => response.writeHead(404).end('not here'));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const foreign = await runVerb(['sandbox', 'status', '--url', `http://127.0.0.1:${port}`]);
    other.close();
    expect([foreign.status, foreign.stderr]).toEqual([1, expect.stringContaining('no sandbox')]);
    expect((await runVerb(['sandbox', 'cause', 'asset_updated', '999', ...at])).status).toBe(1);
    const unknown = await runVerb(['sandbox', 'cuase']);
    expect([unknown.status, unknown.stderr]).toEqual([2, expect.stringContaining('Did you mean cause?')]);
    expect((await runVerb(['sandbox', 'cause', '--colour', 'red'])).status).toBe(2);
    expect((await runVerb(['sandbox', 'ls', '--url', 'nowhere'])).status).toBe(2);
  });

  it.each(['cause', 'fault', 'ls', 'make', 'destroy', 'grant', 'take', 'clock', 'threshold'])(
    '%s --help shows examples',
    async (verb) => {
      await expect(run(verb, '--help')).rejects.toBeInstanceOf(CommanderError);
      expect(out).toMatch(/Examples?:\n +tagferry sandbox/);
    },
  );
});
