import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from './agent-process.ts';

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
    // A child that stays.
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

/** A file of a process; '' where it has ended meanwhile. */
function ofProcess(pid: number | string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    return '';
  }
}

/** The daemon and everything below it. */
function family(pid: number): number[] {
  const isChild = new RegExp(`\\) \\S ${pid} `);
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isChild.test(ofProcess(name, 'stat')));
  return [pid, ...children.flatMap((child) => family(Number(child)))];
}

describe('on the machine of the agent', () => {
  it('no command line and no environment of it or of what it starts names a secret or a token', async () => {
    await agent.start();
    const commands = () => family(agent.pid).map((pid) => ofProcess(pid, 'cmdline'));
    await agent.until(() => commands().some((line) => line.startsWith('sleep')), 'a program of a source runs');
    const seen = family(agent.pid).flatMap((pid) => [ofProcess(pid, 'cmdline'), ofProcess(pid, 'environ')]);
    expect(seen.filter((text) => text.includes('PATH=')).length).toBeGreaterThan(1);
    const token = (JSON.parse(agent.file('session.json')) as { tokens: { accessToken: string }[] }).tokens[0]!
      .accessToken;
    for (const secret of [...SECRETS, token]) expect(seen.filter((text) => text.includes(secret))).toEqual([]);
  });

  it('SIGUSR1 opens no debugger, through which everyone could ask for the session', async () => {
    await agent.start();
    for (let times = 0; times < 5; times++) {
      agent.signal('SIGUSR1');
      const headers = { Authorization: 'Bearer the-ops-token' };
      expect((await agent.call(agent.ops, '/status', { headers })).status).toBe(200);
    }
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(agent.output).not.toMatch(/debugger|inspector/i);
  });

  it('its sockets are open to its user and group alone, its state to its user alone', async () => {
    await agent.start();
    const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);
    const sockets = [agent.ingest, agent.ops, agent.webhook, join(agent.state, 'control.sock')];
    expect(sockets.map(modeOf)).toEqual(['660', '660', '660', '660']);
    expect(modeOf(agent.state)).toBe('700');
    const open = readdirSync(agent.state).filter((name) => (statSync(join(agent.state, name)).mode & 0o007) !== 0);
    expect(open).toEqual([]);
  });
});
