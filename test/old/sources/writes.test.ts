/** Writes to a Modbus device by a rule on local values and by an operator, through the guards. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CONTROL_SERVER } from '../../../src/base/node-http.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { PROOF_FOLDER, prove } from '../../../src/control/write-proof.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Peer } from '../../e2e/harness/modbus-peer.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let peer: Peer;
let port: number;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  port = await freePort();
  peer = await Peer.tcp(port);
  agent = new AgentProcess(sandbox.url);
  configure();
});
afterEach(async () => {
  await agent.dispose();
  await peer.end();
  await sandbox.stop();
});

/** Register of the setpoint, which the device initially sets to 100. */
const SETPOINT = 100;

function configure(more: { writes?: string; writable?: string; maxAge?: string; timeout?: string } = {}): void {
  const { writes = 'on', writable = '{ min: 0, max: 100 }', maxAge = '10m', timeout = '300ms' } = more;
  agent.write(sandbox.url, {
    env: writes === '' ? {} : { WRITES: writes },
    tags: `sources:
  plc: { modbus: "tcp://127.0.0.1:${port}", every: 1s, timeout: ${timeout} }
tags:
  FT-101: { asset: 881, values: { flow: {} } }
  VALVE-1: { asset: 882, values: { setpoint: { from: plc, register: holding ${SETPOINT}, scale: 0.1, writable: ${writable} } } }
`,
    reactions: `reactions:
  - name: follow
    on: value
    max_age: ${maxAge}
    if: { tag: FT-101, key: flow, changes: true }
    do: [{ write: { tag: VALVE-1, key: setpoint, value: "{{content.data.value}}" } }]
`,
  });
}

async function push(...values: number[]): Promise<void> {
  for (const value of values) {
    expect((await agent.push([{ tag: 'FT-101', key: 'flow', value }])).status).toBe(204);
  }
}

const write = (...args: string[]) => runVerb(['write', ...args, '--config', agent.config]);

async function newestEvent(): Promise<{ id: number; event_type: string; state: string; text: string }> {
  const listed = await runVerb(['events', 'ls', '--json', '--config', agent.config]);
  const [newest] = JSON.parse(listed.stdout) as { id: number; event_type: string; state: string }[];
  const shown = await runVerb(['events', 'show', String(newest!.id), '--config', agent.config]);
  return { ...newest!, text: shown.stdout };
}

const CONTROL = () => join(agent.state, 'control.sock');
const REQUEST = { tag: 'VALVE-1', key: 'setpoint', value: 20 };

function post(socketPath: string, route: string, body: object): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, path: `/${route}`, method: 'POST' });
    sent.on('error', reject).on('response', (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    sent.end(JSON.stringify(body));
  });
}

describe('write action', () => {
  it('writes the scaled value, verifies it, and records it in journal, log and metrics', async () => {
    await agent.start();
    await push(1, 42.5);
    await agent.until(() => agent.logged('write.done').length > 0, 'the value is written');
    expect(peer.written(SETPOINT)).toEqual([[425]]);
    expect(agent.logged('write.done')[0]).toMatchObject({
      tag: 'VALVE-1',
      key: 'setpoint',
      by: 'reaction follow',
      previous: 10,
      requested: 42.5,
      readBack: 42.5,
    });
    expect(await agent.metric('tagferry_writes_total{outcome="written"}')).toBe(1);
    await agent.until(async () => (await newestEvent()).state === 'done', 'the event is completed');
    expect((await newestEvent()).text).toContain('previous 10, requested 42.5, read back 42.5');
  });

  it('writes nothing outside the range, and does not retry', async () => {
    await agent.start();
    await push(1, 100.1, -0.1, 6_000);
    await agent.until(() => agent.logged('reaction.dead').length === 3, 'three actions have failed');
    expect(peer.written(SETPOINT)).toEqual([]);
    expect(await agent.metric('tagferry_writes_total{outcome="rejected"}')).toBe(3);
    expect((await newestEvent()).text).toContain('6000 is not within 0 to 100');
  });

  it('writes nothing while WRITES is off', async () => {
    configure({ writes: '' });
    await agent.start();
    await push(1, 50);
    await agent.until(() => agent.logged('reaction.dead').length === 1, 'the action has failed');
    expect(peer.written(SETPOINT)).toEqual([]);
    const checked = await runVerb(['check', '--config', agent.config]);
    expect(checked.stdout + checked.stderr).toContain('WRITES is off, so the reaction writes nothing');
  });

  it('writes nothing if WRITES is turned off by a reload while the write is in progress', async () => {
    configure({ timeout: '15s' });
    await agent.start();
    await push(1);
    await peer.configure({ unit: 1, delay: 3 });
    await push(50);
    configure({ timeout: '15s', writes: 'off' });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('reaction.dead').length === 1, 'the action has failed');
    expect(agent.logged('config.reloaded')).toHaveLength(1);
    expect((await newestEvent()).text).toContain('WRITES is off; previous 10, requested 50');
    expect(peer.written(SETPOINT)).toEqual([]);
  });

  it('fails with the value that the device returns instead', async () => {
    await peer.configure({ clamp: 300 });
    await agent.start();
    await push(1, 50);
    await agent.until(() => agent.logged('reaction.dead').length === 1, 'the action has failed');
    expect(peer.written(SETPOINT)).toEqual([[500]]);
    expect((await newestEvent()).text).toContain('the device returns 30 instead of 50');
    expect(await agent.metric('tagferry_writes_total{outcome="unverified"}')).toBe(1);
  });

  it('repeats a write whose result was lost by kill -9', async () => {
    await peer.configure({ unit: 1, mute_writes: true });
    configure({ timeout: '5s' });
    await agent.start();
    await push(1, 50);
    await agent.until(() => peer.written(SETPOINT).length > 0, 'the device has received the write');
    await agent.end('SIGKILL');
    await peer.configure({ unit: 1 });
    await agent.start();
    await agent.until(() => agent.logged('write.done').length > 0, 'the write is repeated');
    expect(peer.written(SETPOINT).every((words) => words[0] === 500)).toBe(true);
    await agent.until(async () => (await newestEvent()).state === 'done', 'the event is completed');
    expect((await newestEvent()).text).toContain('interrupted by a crash or power failure');
  });

  it('writes after a restart if kill -9 came between the journal entry and the write', async () => {
    await agent.start();
    await push(1);
    await agent.until(async () => (await agent.metric('tagferry_values_ingested_total')) > 1, 'the device is read');
    await peer.configure({ unit: 1, hang: true });
    const hangs = peer.hangs;
    await push(50);
    await agent.until(() => peer.hangs > hangs, 'the device does not respond');
    await agent.end('SIGKILL');
    expect(peer.written(SETPOINT)).toEqual([]);
    await peer.configure({ unit: 1 });
    await agent.start();
    await agent.until(() => agent.logged('write.done').length > 0, 'the value is written');
    expect(peer.written(SETPOINT)).toEqual([[500]]);
  });

  it('uses function 16 if the device does not support function 6', async () => {
    await peer.configure({ unit: 1, unsupported: [6] });
    await agent.start();
    await push(1, 50);
    await agent.until(() => agent.logged('write.done').length > 0, 'the value is written');
    expect(peer.responses.flatMap((one) => one.function ?? [])).toEqual([16]);
  });

  it('writes nothing after an outage that is longer than max_age', async () => {
    configure({ maxAge: '2s' });
    await peer.configure({ unit: 1, hang: true });
    await agent.start();
    await push(1, 50);
    await agent.until(() => agent.logged('reaction.dead').length === 1, 'the event is too old');
    await peer.configure({ unit: 1 });
    await agent.until(() => agent.logged('modbus.silent_over').length > 0, 'the device responds');
    const replayed = await runVerb(['events', 'replay', String((await newestEvent()).id), '--config', agent.config]);
    expect(replayed.status).toBe(0);
    await agent.until(() => agent.logged('reaction.dead').length === 2, 'the replayed action has failed');
    expect(peer.written(SETPOINT)).toEqual([]);
  });
});

describe('tagferry write', () => {
  it('writes a value and records the operator', async () => {
    await agent.start();
    const written = await write('VALVE-1', 'setpoint', '20', '--yes');
    expect(written).toMatchObject({ status: 0, stdout: expect.stringContaining('VALVE-1 setpoint: written') });
    expect(peer.written(SETPOINT)).toEqual([[200]]);
    expect(await newestEvent()).toMatchObject({
      event_type: 'value_written',
      state: 'done',
      text: expect.stringMatching(/by operator \S+: previous 10, requested 20, read back 20/),
    });
  });

  it('applies the same guards as a reaction', async () => {
    await agent.start();
    const refusals = [
      [['VALVE-1', 'setpoint', '101'], '101 is not within 0 to 100'],
      [['VALVE-1', 'setpoint', 'wide'], 'value must be a number'],
      [['VALVE-1', 'speed', '1'], 'has no value "speed"'],
      [['FT-101', 'flow', '1'], 'is not writable'],
      [['VALVE-2', 'setpoint', '1'], 'contains no tag "VALVE-2"'],
    ] as const;
    for (const [args, reason] of refusals) {
      const refused = await write(...args, '--yes');
      expect(refused.status).not.toBe(0);
      expect(refused.stderr).toContain(reason);
    }
    const unconfirmed = await write('VALVE-1', 'setpoint', '20');
    expect(unconfirmed.stderr).toContain('Confirmation requires a terminal');
    expect(peer.written(SETPOINT)).toEqual([]);
  });

  it('writes nothing for a client of the control socket without a proof of root', async () => {
    await agent.start();
    const confirm = async (id: string) => (await post(CONTROL(), 'write/confirm', { id, ...REQUEST })).status;
    for (const id of ['', '../x', randomUUID()]) expect(await confirm(id)).toBe(400);
    const own = randomUUID();
    mkdirSync(PROOF_FOLDER, { recursive: true });
    writeFileSync(join(PROOF_FOLDER, own), JSON.stringify({ ...REQUEST, user: 'x', untilMs: 1e15 }));
    chownSync(join(PROOF_FOLDER, own), 65_534, 65_534);
    expect(await confirm(own)).toBe(400);
    rmSync(join(PROOF_FOLDER, own));
    const expired = await prove({ ...REQUEST, user: 'root' }, -1);
    expect(await confirm(expired.id)).toBe(400);
    await expired.remove();
    expect(peer.written(SETPOINT)).toEqual([]);
  });

  it('writes once per proof', async () => {
    await agent.start();
    const { id, remove } = await prove({ ...REQUEST, user: 'root' });
    const confirm = async () => (await post(CONTROL(), 'write/confirm', { id, ...REQUEST, value: 50 })).status;
    expect([await confirm(), await confirm()]).toEqual([200, 400]);
    await remove();
    expect(peer.written(SETPOINT)).toEqual([[200]]);
  });

  it('records concurrent writes as separate events', async () => {
    await agent.start();
    const values = [10, 20, 30, 40];
    const proofs = await Promise.all(values.map((value) => prove({ ...REQUEST, value, user: 'root' })));
    const confirmed = await Promise.all(proofs.map(({ id }) => post(CONTROL(), 'write/confirm', { id })));
    for (const { remove } of proofs) await remove();
    const events = confirmed.map(({ text }) => (JSON.parse(text) as { event: number }).event);
    expect(new Set(events).size).toBe(values.length);
    for (const [at, id] of events.entries()) {
      const shown = await runVerb(['events', 'show', String(id), '--config', agent.config]);
      expect(shown.stdout).toContain(`write VALVE-1 setpoint ${values[at]}`);
    }
  });

  it('is not repeated after kill -9 during the write', async () => {
    await peer.configure({ unit: 1, mute_writes: true });
    configure({ timeout: '5s' });
    await agent.start();
    const { id, remove } = await prove({ ...REQUEST, user: 'root' });
    const confirmed = post(CONTROL(), 'write/confirm', { id }).catch(() => undefined);
    await agent.until(() => peer.written(SETPOINT).length > 0, 'the device has received the write');
    await agent.end('SIGKILL');
    await confirmed;
    await remove();
    await peer.configure({ unit: 1 });
    await agent.start();
    await agent.until(async () => (await newestEvent()).state === 'dead', 'the event has failed');
    expect((await newestEvent()).text).toContain('interrupted by a crash or power failure');
    expect(peer.written(SETPOINT)).toHaveLength(1);
  });

  it('is not repeated by a replay', async () => {
    await agent.start();
    expect((await write('VALVE-1', 'setpoint', '20', '--yes')).status).toBe(0);
    const { id } = await newestEvent();
    await runVerb(['events', 'replay', String(id), '--config', agent.config]);
    await agent.until(async () => (await newestEvent()).state === 'dead', 'the event has failed');
    expect((await newestEvent()).text).toContain('manual writes cannot be replayed');
    expect(peer.written(SETPOINT)).toEqual([[200]]);
  });

  it('creates no file that another process on the control socket names', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-socket-'));
    const target = join(folder, 'target');
    const bodies: string[] = [];
    const server = createServer((incoming, response) => {
      incoming.on('data', (chunk) => bodies.push(String(chunk)));
      incoming.on('end', () => {
        const prepared = { id: 'any text', file: target, name: 'VALVE-1', value: 20, previous: 1 };
        const confirmed = { outcome: 'written', detail: 'done', event: 1 };
        response.setHeader('Server', CONTROL_SERVER);
        response.setHeader('Content-Type', 'application/json');
        response.end(JSON.stringify(incoming.url!.endsWith('preview') ? prepared : confirmed));
      });
    });
    mkdirSync(agent.state, { recursive: true });
    server.listen(CONTROL());
    await once(server, 'listening');
    try {
      const written = await write('VALVE-1', 'setpoint', '20', '--yes');
      expect(written.stderr).toBe('');
      expect(bodies).toHaveLength(2);
      expect(existsSync(target)).toBe(false);
      const { id } = JSON.parse(bodies[1]!) as { id: string };
      expect(existsSync(join(PROOF_FOLDER, id))).toBe(false);
    } finally {
      server.close();
      rmSync(folder, { recursive: true });
    }
  });

  it('is not available on any listener', async () => {
    await agent.start();
    for (const socket of [agent.ops, agent.ingest, agent.webhook]) {
      expect((await post(socket, 'write/preview', REQUEST)).status).toBeGreaterThanOrEqual(400);
      expect((await post(socket, 'write', REQUEST)).status).toBeGreaterThanOrEqual(400);
    }
    expect(peer.written(SETPOINT)).toEqual([]);
  });
});

describe('WRITES', () => {
  it.each(['the environment', 'a credential', 'a file'])('is not accepted from %s', async (origin) => {
    configure({ writes: '' });
    const folder = join(agent.folder, 'credentials');
    mkdirSync(folder);
    writeFileSync(join(folder, 'writes'), 'on');
    const environment =
      origin === 'the environment'
        ? { WRITES: 'on' }
        : origin === 'a file'
          ? { WRITES_FILE: join(folder, 'writes') }
          : { CREDENTIALS_DIRECTORY: folder };
    const checked = await runVerb(['check', '--config', agent.config], environment);
    expect(checked.status).not.toBe(0);
    expect(checked.stdout + checked.stderr).toContain('set WRITES in agent.env');
  });
});
