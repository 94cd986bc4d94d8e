import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Command, CommanderError } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { define } from '../../../src/sandbox/program/verbs.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Receiver } from '../../unit/sandbox/receiver.ts';
import { Visitor } from '../../unit/sandbox/visitor.ts';
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

/** Runs a verb in this process and returns its output. */
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

/** Returns the error message of a rejected verb and its hint. */
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

  it('accepts objects by name, values, units, attributes and repetitions', async () => {
    await register('threshold_reached', 'asset_updated', 'asset_values_created');
    const text = await run('cause', 'threshold_reached', 'FT-102', '--value', '31.5', '--key', 'temperature');
    expect(text).toBe('threshold_reached (instrumentation 4712), sent to 1 webhook\n');
    await run('cause', 'asset_updated', 'SN-000882', '--set', 'description=Inlet, new', '--set', 'serial_number=77');
    await vi.waitFor(() => expect(receiver.types()).toContain('asset_updated'));
    const updated = receiver.received.find(({ event }) => event.event_type === 'asset_updated')!.event;
    expect(updated.content.asset).toMatchObject({ id: 882, description: 'Inlet, new', serial_number: '77' });
    expect(await json('cause', 'asset_values_created', '881', '--value', '5', '--times', '3')).toHaveLength(3);
    expect(sandbox.values.last(881, 'flow')?.value).toBe(5);
  });

  it('lists all types with their objects and options if no type is given', async () => {
    const listed = await json('cause');
    expect(listed.map((one: { event_type: string }) => one.event_type)).toEqual([...EVENT_TYPES]);
    expect(await run('cause')).toMatch(/threshold_reached +instrumentations +--key --value --unit/);
  });

  it('suggests the nearest type, object and option', async () => {
    expect(await refusal('cause', 'treshold_reached')).toMatch(/^usage: .*Did you mean threshold_reached\?/);
    expect(await refusal('cause', 'threshold_reached', 'FT-1O1')).toMatch(/^sandbox\.refused: .*FT-101/);
    expect(await refusal('cause', 'asset_updated', '--key', 'x')).toMatch(/^usage: .*accepts --status, --set/);
    expect(await refusal('cause', 'asset_updated', '999')).toMatch(/^sandbox\.refused: /);
    expect(await refusal('cause', 'asset_appeared', '881', '882')).toMatch(/^usage: /);
  });
});

describe('tagferry sandbox fault', () => {
  it('sets, lists and removes faults', async () => {
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
    expect(await run('fault')).toBe('No faults.\n');
  });

  it('expires tokens, rejects values, limits rates and takes the platform offline', async () => {
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
    expect(await refusal('fault', 'offline')).toMatch(/^sandbox\.refused: forMs /);
  });

  it('suggests the nearest fault for an unknown one', async () => {
    expect(await refusal('fault', 'ofline')).toMatch(/^usage: .*Did you mean offline\?/);
    expect(await refusal('fault', 'drop', 'sometimes')).toMatch(/^usage: /);
    expect(await refusal('fault', 'latency', '500')).toMatch(/^usage: .*500ms/);
    expect(await refusal('fault', 'status', '42')).toMatch(/^sandbox\.refused: status /);
  });
});

describe('tagferry sandbox clock and status', () => {
  it('set and accelerate the clock', async () => {
    const before = sandbox.clock.wallMs();
    const { time } = await json('clock', 'advance', '11m');
    expect(Date.parse(time) - before).toBeGreaterThanOrEqual(660_000);
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(401);
    await run('clock', 'speed', '60');
    expect(sandbox.clock.speed).toBe(60);
    expect(await refusal('clock', 'advance')).toMatch(/^usage: /);
    expect(await refusal('clock', 'speed', '0')).toMatch(/^usage: /);
  });

  it('show the state of the sandbox', async () => {
    await register('asset_updated');
    expect(await json('status')).toMatchObject({ webhooks: 1, speed: 1, outage: null });
    expect(await run('status')).toMatch(/^webhooks +1$/m);
  });
});

describe('tagferry sandbox', () => {
  it('exits with 0 on success, 1 if no sandbox responds or the call is rejected, and 2 for invalid arguments', async () => {
    const at = ['--url', sandbox.url];
    expect((await runVerb(['sandbox', 'status', ...at])).status).toBe(0);
    const absent = await runVerb(['sandbox', 'status', '--url', 'http://127.0.0.1:9']);
    expect([absent.status, absent.stderr]).toEqual([1, expect.stringContaining('Start one with `tagferry sandbox`')]);
    const other = createServer((_request, response) => response.writeHead(404).end('not here'));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const foreign = await runVerb(['sandbox', 'status', '--url', `http://127.0.0.1:${port}`]);
    other.close();
    expect([foreign.status, foreign.stderr]).toEqual([1, expect.stringContaining('not a sandbox')]);
    expect((await runVerb(['sandbox', 'cause', 'asset_updated', '999', ...at])).status).toBe(1);
    const unknown = await runVerb(['sandbox', 'cuase']);
    expect([unknown.status, unknown.stderr]).toEqual([2, expect.stringContaining('Did you mean cause?')]);
    expect((await runVerb(['sandbox', 'cause', '--colour', 'red'])).status).toBe(2);
    expect((await runVerb(['sandbox', 'status', '--url', 'nowhere'])).status).toBe(2);
  });

  it.each(['cause', 'fault', 'clock'])('%s --help shows examples', async (verb) => {
    await expect(run(verb, '--help')).rejects.toBeInstanceOf(CommanderError);
    expect(out).toMatch(/Examples?:\n +tagferry sandbox/);
  });
});
