import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const SECRETS = [
  SANDBOX_CREDENTIALS.clientSecret,
  SANDBOX_CREDENTIALS.technicalPassword,
  'the-ingest-token',
  'the-ops-token',
];

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, {
    env: { INGEST_TOKEN: 'the-ingest-token', OPS_TOKEN: 'the-ops-token' },
    // A child process that does not exit.
    tags: `
sources:
  own: { exec: [/bin/sh, -c, 'echo FT-101 flow=1; exec sleep 600'] }
tags:
  FT-101: { asset: 881, values: { flow: { unit: 12 } } }
`,
  });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** File in a process's /proc folder; '' if the process has ended. */
function ofProcess(pid: number | string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    return '';
  }
}

/** The agent and its child processes. */
function family(pid: number): number[] {
  const isChild = new RegExp(`\\) \\S ${pid} `);
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isChild.test(ofProcess(name, 'stat')));
  return [pid, ...children.flatMap((child) => family(Number(child)))];
}

describe('agent on a shared machine', () => {
  it('exposes no secret or token in the command line or environment of its processes', async () => {
    await agent.start();
    const commands = () => family(agent.pid).map((pid) => ofProcess(pid, 'cmdline'));
    await agent.until(() => commands().some((line) => line.startsWith('sleep')), 'a source program is running');
    const seen = family(agent.pid).flatMap((pid) => [ofProcess(pid, 'cmdline'), ofProcess(pid, 'environ')]);
    expect(seen.filter((text) => text.includes('PATH=')).length).toBeGreaterThan(1);
    const token = (JSON.parse(agent.file('session.json')) as { tokens: { accessToken: string }[] }).tokens[0]!
      .accessToken;
    for (const secret of [...SECRETS, token]) expect(seen.filter((text) => text.includes(secret))).toEqual([]);
  });

  it('does not open a debugger on SIGUSR1', async () => {
    await agent.start();
    for (let times = 0; times < 5; times++) {
      agent.signal('SIGUSR1');
      const headers = { Authorization: 'Bearer the-ops-token' };
      expect((await agent.call(agent.ops, '/status', { headers })).status).toBe(200);
    }
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(agent.output).not.toMatch(/debugger|inspector/i);
  });

  it('restricts its sockets to its user and group, and its state folder to its user', async () => {
    await agent.start();
    const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);
    const sockets = [agent.ingest, agent.ops, agent.webhook, join(agent.state, 'control.sock')];
    expect(sockets.map(modeOf)).toEqual(['660', '660', '660', '660']);
    expect(modeOf(agent.state)).toBe('700');
    const open = readdirSync(agent.state).filter((name) => (statSync(join(agent.state, name)).mode & 0o007) !== 0);
    expect(open).toEqual([]);
  });
});
