/** Rejected configuration files in a reload and at the next startup. */
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: {} } }\n';
const REACTIONS = 'reactions:\n  - { name: old-rule, on: threshold_reached, do: [{ log: warn }] }\n';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS, reactions: REACTIONS, env: { WEBHOOK_LISTEN: '' } });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const write = (name: string, text: string) => writeFileSync(join(agent.config, name), text);
const read = (name: string) => readFileSync(join(agent.config, name), 'utf8');
const reload = (...more: string[]) => runVerb(['reload', '--config', agent.config, ...more]);
/** As in the unit, the state folder is not set in agent.env. */
const UNIT = () => ({ STATE_DIRECTORY: agent.state });

interface Health {
  status: string;
  notes: string[];
}
const health = async () => {
  const { status, text } = await agent.call(agent.ops, '/healthz');
  return { code: status, ...(JSON.parse(text) as Health) };
};
interface Told {
  configuration: {
    refused: { since: string; problems: string[]; parts?: string[] } | null;
    restart_needed: string[];
    changed_credentials: string[];
  };
}
const configuration = async () => ((await agent.status()) as unknown as Told).configuration;
const takes = async () => (await agent.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status;

describe('tagferry reload', () => {
  it('exits with 1 and lists the problems in rejected files, which status reports until they are fixed', async () => {
    await agent.start();
    expect(await reload()).toMatchObject({ status: 0, stdout: 'Configuration reloaded.\n' });
    expect(await agent.metric('tagferry_configuration_refused_since_seconds')).toBe(0);

    write('tags.yaml', 'tags:\n  FT-101: { asset: none }\n');
    const refused = await reload();
    expect(refused.status).toBe(1);
    expect(refused.stderr).toMatch(/tags\.yaml:2:\d+: .*none/);
    expect((await configuration()).refused?.problems.join()).toContain('tags.yaml:2');
    const { code, status, notes } = await health();
    expect({ code, status }).toEqual({ code: 200, status: 'ok' });
    expect(notes.join()).toMatch(/^configuration files rejected at 20\S+, using the previous ones: .*tags\.yaml:2/);
    expect(await agent.metric('tagferry_configuration_refused_since_seconds')).toBeGreaterThan(1.7e9);
    const screen = await runVerb(['status', '--config', agent.config]);
    expect(screen.stdout).toMatch(/files +rejected at .*\n.*tags\.yaml:2/);
    expect(await takes()).toBe(204);

    const first = (await configuration()).refused!;
    write('tags.yaml', 'tags: 7\n');
    expect((await reload()).status).toBe(1);
    const second = (await configuration()).refused!;
    expect(Date.parse(second.since)).toBeGreaterThan(Date.parse(first.since));
    expect(second.problems).not.toEqual(first.problems);

    write('tags.yaml', TAGS);
    expect((await reload('--json')).stdout).toContain('"reloaded": true');
    expect((await configuration()).refused).toBeNull();
    expect((await health()).notes).toEqual([]);
  });

  it('lists the keys that require a restart', async () => {
    await agent.start();
    write('agent.env', `${read('agent.env')}WEBHOOK_POLL=7m\n`);
    const { status, stderr } = await reload();
    expect({ status, stderr }).toMatchObject({
      status: 0,
      stderr: expect.stringMatching(/WEBHOOK_POLL.*systemctl restart/s),
    });
    expect((await configuration()).restart_needed).toEqual(['WEBHOOK_POLL']);
  });

  it('reports a systemd credential that changed after startup, as does status', async () => {
    const loaded = join(agent.folder, 'loaded');
    mkdirSync(loaded);
    mkdirSync(join(agent.config, 'credentials'));
    const [, secret] = /CLIENT_SECRET=(.*)\n/.exec(read('agent.env'))!;
    write('agent.env', read('agent.env').replace(/CLIENT_SECRET=.*\n/, ''));
    writeFileSync(join(loaded, 'client_secret'), secret!);
    write('credentials/client_secret', secret!);
    await agent.start({ CREDENTIALS_DIRECTORY: loaded });
    expect((await configuration()).changed_credentials).toEqual([]);
    write('credentials/client_secret', 'corrected');
    expect((await configuration()).changed_credentials).toEqual(['client_secret']);
    // The platform would reject the secrets.
    await sandbox.goOffline('refuse');
    // Applying a different secret with a reload does not make the credential current.
    write('agent.env', read('agent.env').replace(/(TECHNICAL_PASSWORD=.*)\n/, '$1-new\n'));
    const { status, stdout, stderr } = await reload();
    expect([status, stdout]).toEqual([0, 'Configuration reloaded, except for: systemd credential client_secret.\n']);
    expect(stderr).toMatch(/credential client_secret.*systemctl restart tagferry/s);
    expect((await configuration()).changed_credentials).toEqual(['client_secret']);
    // Platform address of the unit that passes the credential again.
    writeFileSync(join(loaded, 'client_secret'), 'corrected');
    expect((await reload()).stdout).toBe('Configuration reloaded.\n');
    expect((await configuration()).changed_credentials).toEqual([]);
  });
});

describe('rejected password', () => {
  const session = async () =>
    (await agent.status()) as unknown as { session: { usable: boolean; last_error?: { hint: string } } };
  const rejected = async () => (await session()).session.last_error?.hint;
  const PASSWORD = /TECHNICAL_PASSWORD=(.*)\n/;

  it('in agent.env can be corrected with a reload, as the hint suggests', async () => {
    const before = read('agent.env');
    write('agent.env', before.replace(PASSWORD, 'TECHNICAL_PASSWORD=wrong\n'));
    await agent.start();
    await expect.poll(rejected).toMatch(/To apply a changed password, run `tagferry reload`\.$/);
    write('agent.env', before);
    expect(await reload()).toMatchObject({ status: 0, stdout: 'Configuration reloaded.\n' });
    await expect.poll(async () => (await session()).session.usable).toBe(true);
  });

  it('in a systemd credential can be corrected with a restart, as the hint suggests', async () => {
    const loaded = join(agent.folder, 'loaded');
    mkdirSync(loaded);
    const [, password] = PASSWORD.exec(read('agent.env'))!;
    write('agent.env', read('agent.env').replace(PASSWORD, ''));
    writeFileSync(join(loaded, 'technical_password'), 'wrong\n');
    await agent.start({ CREDENTIALS_DIRECTORY: loaded });
    await expect.poll(rejected).toMatch(/To apply a changed password, run `sudo systemctl restart tagferry`\.$/);
    writeFileSync(join(loaded, 'technical_password'), `${password}\n`);
    await agent.end('SIGTERM');
    await agent.start({ CREDENTIALS_DIRECTORY: loaded });
    await expect.poll(async () => (await session()).session.usable).toBe(true);
  });
});

describe('startup with rejected files', () => {
  it('uses the latest valid tags, and reports this', async () => {
    await agent.start(UNIT());
    await agent.end('SIGTERM');
    write('tags.yaml', 'tags: [\n');
    await agent.start(UNIT());
    expect(await takes()).toBe(204);
    const { refused } = await configuration();
    expect(refused?.parts).toEqual(['tags']);
    expect((await health()).notes.length).toBe(1);
    expect(agent.logged('config.refused').at(-1)).toMatchObject({ parts: ['tags'], level: 'error' });
    // If the files are fixed while the agent is running, a reload is sufficient.
    write('tags.yaml', TAGS);
    expect((await reload()).status).toBe(0);
    expect((await configuration()).refused).toBeNull();
  });

  it('uses previous settings with current secrets, and stores no secrets from agent.env', async () => {
    await agent.start(UNIT());
    await agent.end('SIGTERM');
    expect(statSync(join(agent.state, 'last-good.json')).mode & 0o777).toBe(0o600);
    const kept = readFileSync(join(agent.state, 'last-good.json'), 'utf8');
    expect(kept).toContain('FT-101');
    for (const key of ['CLIENT_SECRET', 'TECHNICAL_PASSWORD']) {
      expect(kept).not.toContain(new RegExp(`^${key}=(.*)$`, 'm').exec(read('agent.env'))![1]);
    }
    write('agent.env', `${read('agent.env')}POST_INTERVALL=1s\n`);
    await agent.start(UNIT());
    expect(await takes()).toBe(204);
    await agent.until(async () => (await agent.metric('tagferry_values_delivered_total')) > 0, 'the value arrives');
  });

  it('runs no reactions from a rejected file, and stores no copy of it', async () => {
    await agent.start(UNIT());
    await agent.end('SIGTERM');
    write('reactions.yaml', 'reactions: nonsense\n');
    await agent.start(UNIT());
    expect((await configuration()).refused?.parts).toEqual(['reactions']);
    expect(readFileSync(join(agent.state, 'last-good.json'), 'utf8')).not.toContain('old-rule');
  });

  it('exits with 78 if there is no stored copy or platform address, or if --strict is set', async () => {
    const good = read('agent.env');
    write('tags.yaml', 'tags: [\n');
    agent.launch(UNIT());
    expect(await agent.ended()).toBe(78);
    write('tags.yaml', TAGS);
    await agent.start(UNIT());
    await agent.end('SIGTERM');
    write('agent.env', good.replace(/^PLATFORM_URL=.*$/m, 'PLATFORM_URL='));
    agent.launch(UNIT());
    expect(await agent.ended()).toBe(78);
    write('agent.env', good);
    write('tags.yaml', 'tags: [\n');
    expect(await runVerb(['run', '--strict', '--config', agent.config], UNIT())).toMatchObject({ status: 78 });
  });
});
