import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Gateway, packageOf } from './gateway.ts';
import { until } from './machine.ts';
import type { Terminal } from './terminal.ts';

const PATIENCE_MS = 300_000;
const UNIT = 'tagferry.service';
const SECRETS = ['sandbox-secret', 'gateway-password', 'not-the-password'];
const CREDENTIALS = '/etc/tagferry/credentials';

let gateway: Gateway;

beforeAll(async () => {
  const deb = await packageOf({ version: '0.0.1' });
  gateway = await Gateway.boot();
  await gateway.install(deb, 'apt');
  await gateway.startSandbox();
}, 1_200_000);

afterAll(async () => {
  await gateway?.stop();
});

/** Output fits 80 columns, except for commands to paste, and shows no secret, even during input. */
function expectFit(terminal: Terminal): void {
  const lines = terminal.lines.filter((line) => !/^ {2}(sudo|cat|echo|tagferry) /.test(line));
  for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(80);
  for (const secret of SECRETS) expect(terminal.raw).not.toContain(secret);
}

async function systemdVersion(): Promise<number> {
  return Number(/systemd (\d+)/.exec(await gateway.machine.sh('systemctl --version'))![1]);
}

async function answerCredentials(terminal: Terminal, password: string): Promise<void> {
  await terminal.answer(/API URL[\s\S]*: $/, 'http://127.0.0.1:8480');
  await terminal.answer(/Identity application[\s\S]*: $/, '');
  await terminal.answer(/API key[\s\S]*: $/, 'sandbox-client');
  await terminal.answer(/API secret[\s\S]*: $/, 'sandbox-secret');
  await terminal.answer(/technical user[\s\S]*: $/, 'gateway@sandbox.example');
  await terminal.answer(/Password[\s\S]*: $/, password);
}

describe('setup on a terminal', { timeout: PATIENCE_MS }, () => {
  let terminal: Terminal;

  it('reports rejected credentials immediately, prompts again, and prints the next steps', async () => {
    terminal = gateway.machine.terminal('tagferry setup');
    await answerCredentials(terminal, 'not-the-password');
    await terminal.answer(/answer again[\s\S]*: $/, '');
    await answerCredentials(terminal, 'gateway-password');
    await terminal.answer(/client application[\s\S]*: $/, '');
    await terminal.answer(/webhook events[\s\S]*: $/, '');
    await terminal.answer(/first tag[\s\S]*: $/, 'FT-101');
    await terminal.answer(/Asset number[\s\S]*: $/, '881');
    await terminal.answer(/Instrumentation number[\s\S]*: $/, '4711');
    await terminal.answer(/Value key[\s\S]*: $/, '');
    await terminal.answer(/Unit[\s\S]*: $/, '12');
    await terminal.answer(/Source of the value[\s\S]*: $/, '');
    await terminal.answer(/Write the configuration[\s\S]*: $/, 'y');
    expect(await terminal.ended(), terminal.text).toBe(0);
    expect(terminal.text).toContain('Login successful');
    expect(terminal.text).toMatch(/Next:\n {2}sudo systemctl start tagferry\n {2}tagferry doctor\n {2}tagferry status/);
    expectFit(terminal);
  });

  it('encrypts secrets for this machine if systemd supports it, and otherwise stores them with mode 0600', async () => {
    const encrypted = (await systemdVersion()) >= 250;
    const kept = await gateway.machine.sh(`cd ${CREDENTIALS}; stat -c '%n %a %U' *`);
    const ending = encrypted ? '.cred' : '';
    expect(kept.split('\n')).toEqual(
      ['client_secret', 'ops_token', 'technical_password'].map((name) => `${name}${ending} 600 root`),
    );
    const open = await gateway.machine.run(['grep', '-rlE', SECRETS.join('|'), '/etc/tagferry', '/etc/systemd/system']);
    const readable = open.stdout.split('\n').filter(Boolean).sort();
    expect(readable).toEqual(encrypted ? [] : [`${CREDENTIALS}/client_secret`, `${CREDENTIALS}/technical_password`]);
    expect(terminal.text).toContain(encrypted ? 'encrypted for the service on this machine' : '0600');
  });

  it('keeps the owner, mode and comments of the shipped files', async () => {
    expect(await gateway.machine.sh('stat -c "%a %U:%G" /etc/tagferry/agent.env')).toBe('640 root:tagferry');
    expect(gateway.machine.read('/etc/tagferry/agent.env')).toMatch(/^# .+\n#POST_INTERVAL=/m);
    expect(gateway.machine.read('/etc/tagferry/tags.yaml')).toContain('  "FT-101":\n    asset: 881\n');
  });

  it('configures a service that can sign in with the entered secrets', async () => {
    expect(await gateway.machine.property(UNIT, 'UnitFileState')).toBe('enabled');
    await gateway.machine.sh(`systemctl start ${UNIT} 2>&1`);
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online/);
  });

  it('writes a configuration based on the package templates to a separate folder', async () => {
    const other = gateway.machine.terminal('tagferry --config /root/other setup --no-login');
    await answerCredentials(other, 'gateway-password');
    await other.answer(/webhook events[\s\S]*: $/, '');
    await other.answer(/first tag[\s\S]*: $/, '');
    await other.answer(/Write the configuration[\s\S]*: $/, 'y');
    expect(await other.ended(), other.text).toBe(0);
    expect(gateway.machine.read('/root/other/agent.env')).toMatch(/^# .+\n#POST_INTERVAL=/m);
    for (const file of ['tags.yaml', 'reactions.yaml', 'schema/tags.schema.json']) {
      expect(gateway.machine.exists(`/root/other/${file}`), file).toBe(true);
    }
    expect(gateway.machine.read('/root/other/credentials/client_secret')).toBe('sandbox-secret\n');
    expectFit(other);
  });
});

describe('status on a terminal', { timeout: PATIENCE_MS }, () => {
  it('shows session, buffer and rates to a non-root operator within 80 columns', async () => {
    await gateway.machine.sh('useradd --create-home --groups tagferry anna');
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 12.5 }])).status).toBe(204);
    const terminal = gateway.machine.terminal('su anna -c "tagferry status"');
    expect(await terminal.ended(), terminal.text).toBe(0);
    expect(terminal.text).toMatch(/^tagferry \S+ {2}online/);
    for (const label of ['session', 'buffer', 'values']) expect(terminal.text).toMatch(new RegExp(`^${label}\\b`, 'm'));
    expectFit(terminal);
  });

  it('refreshes until Ctrl-C with --watch, and shows a platform outage', async () => {
    const terminal = gateway.machine.terminal('tagferry status --watch --every 300ms');
    await terminal.shows(/online/);
    await gateway.sandbox('POST', 'offline', { mode: 503 });
    await gateway.push([{ tag: 'FT-101', key: 'flow', value: 12.6 }]);
    await terminal.shows(/tagferry \S+ {2}platform unavailable/);
    await gateway.sandbox('POST', 'online');
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
    terminal.press('\x03');
    await terminal.ended();
    expectFit(terminal);
  });

  it('prints the start command if no agent is running', async () => {
    await gateway.machine.sh(`systemctl stop ${UNIT}`);
    const terminal = gateway.machine.terminal('tagferry status');
    expect(await terminal.ended()).toBe(1);
    expect(terminal.text).toContain('systemctl start tagferry');
    expectFit(terminal);
    await gateway.machine.sh(`systemctl start ${UNIT}`);
  });
});

describe('doctor on a terminal', { timeout: PATIENCE_MS }, () => {
  it('reports no failures on a healthy gateway', async () => {
    await until('the agent is online', async () => /^online/.test(await gateway.machine.property(UNIT, 'StatusText')));
    const terminal = gateway.machine.terminal('tagferry doctor');
    expect(await terminal.ended(), terminal.text).toBe(0);
    expectFit(terminal);
  });

  it('exits with 1 and reports failures and the next step if the platform is unavailable', async () => {
    await gateway.machine.sh('systemctl stop platform');
    const terminal = gateway.machine.terminal('tagferry doctor');
    expect(await terminal.ended(), terminal.text).toBe(1);
    expect(terminal.text).toMatch(
      /^failure +network\.tcp +cannot connect to 127\.0\.0\.1 port 8480[\s\S]*next: Check the host and port of/m,
    );
    expectFit(terminal);
  });
});
