import { mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let intruder: Server | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
  await agent.start();
});
afterEach(async () => {
  intruder?.close();
  await agent.dispose();
  await sandbox.stop();
});

const responds = (socket: string, path: string, method: string) =>
  agent.call(socket, path, { method }).then(
    ({ status }) => status,
    () => undefined,
  );

const restored = (listener: string) =>
  agent.logged('listener.socket_restored').filter((line) => line.listener === listener).length;

describe('socket files for a running agent', () => {
  it('are recreated after they are deleted', async () => {
    const control = join(agent.state, 'control.sock');
    for (const path of [control, agent.ingest, agent.ops, agent.webhook]) rmSync(path);
    await agent.until(() => restored('control') === 1, 'the control socket is recreated');
    await agent.until(
      async () =>
        (await responds(control, '/sources/ls', 'POST')) === 200 &&
        (await responds(agent.ingest, '/v1/values', 'POST')) === 415 &&
        (await responds(agent.ops, '/healthz', 'GET')) === 200 &&
        (await responds(agent.webhook, '/other', 'POST')) !== undefined,
      'every listener accepts connections',
    );
    expect(statSync(control).mode & 0o777).toBe(0o660);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('are recreated only after another program listening on the path exits', async () => {
    const control = join(agent.state, 'control.sock');
    rmSync(control);
    intruder = createServer().listen(control);
    await agent.until(() => agent.logged('listener.socket_lost').length === 1, 'the loss is reported');
    expect(statSync(control).isSocket()).toBe(true);
    intruder.close();
    await agent.until(() => restored('control') === 1, 'the control socket is recreated');
    expect(await responds(control, '/sources/ls', 'POST')).toBe(200);
  });

  it('are recreated when their folder is recreated', async () => {
    const folder = join(agent.folder, 'runtime');
    mkdirSync(folder);
    agent.write(sandbox.url, { env: { OPS_LISTEN: `unix:${folder}/ops.sock` } });
    await agent.end('SIGTERM');
    await agent.start();
    renameSync(folder, `${folder}.old`);
    await agent.until(() => agent.logged('listener.socket_lost').length === 1, 'the loss is reported');
    mkdirSync(folder);
    await agent.until(() => restored('ops') === 1, 'the socket is recreated');
    expect(await responds(`${folder}/ops.sock`, '/healthz', 'GET')).toBe(200);
  });

  it('are recreated when their folder is moved back', async () => {
    renameSync(agent.state, `${agent.state}.old`);
    await agent.until(
      () => agent.logged('listener.socket_lost').some(({ listener }) => listener === 'control'),
      'the loss is reported',
    );
    renameSync(`${agent.state}.old`, agent.state);
    await agent.until(() => restored('control') === 1, 'the control socket is recreated');
    expect(await responds(join(agent.state, 'control.sock'), '/sources/ls', 'POST')).toBe(200);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
