// Long: 3 min
/**
 * Tasks of technicians and operators on one machine: an unattended upgrade, secrets in each of the three forms, files
 * that only root can read, a corrected password, and a service that fails repeatedly.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianTree } from '../host/debian-tree.ts';
import { Gateway, packageOf } from '../host/gateway.ts';
import { type Outcome, until } from '../host/machine.ts';

const run = promisify(execFile);
const PATIENCE_MS = 300_000;
const UNIT = 'tagferry.service';
const ENV = '/etc/tagferry/agent.env';
const CREDENTIALS = '/etc/tagferry/credentials';

let folder: string;
let gateway: Gateway;
let deb: string;
/** agent.env as written by `setup`. */
let good: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-operated-'));
  // Both run at the same time, because one compiles while the other downloads.
  [deb] = await Promise.all([packageOf({ version: '0.0.1' }), debianTree()]);
  gateway = await Gateway.boot();
  await gateway.install(deb, 'apt');
  await gateway.startSandbox();
}, 1_200_000);

afterAll(async () => {
  await gateway?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const tagferry = (...args: string[]): Promise<Outcome> => gateway.machine.run(['tagferry', ...args]);
const systemctl = (...args: string[]): Promise<Outcome> => gateway.machine.run(['systemctl', ...args]);
const write = (path: string, text: string, mode?: number) => gateway.machine.write(path, text, mode);

/** Answers in the order of the questions, as a script passes them. */
function setup(how: 'files' | 'systemd'): Promise<Outcome> {
  const credentials = ['http://127.0.0.1:8480', '', 'sandbox-client', 'sandbox-secret', 'gateway@sandbox.example'];
  const answers = [...credentials, 'gateway-password', '', '', 'FT-101', '881', '4711', 'flow', '12'];
  return gateway.machine.run(['tagferry', 'setup', '--secrets', how], { input: `${answers.join('\n')}\n` });
}

interface Line {
  check: string;
  state: string;
  message: string;
  next: string;
}
async function doctor(): Promise<{ status: number; lines: Line[]; of: (check: string) => Line | undefined }> {
  const { status, stdout } = await tagferry('doctor', '--json');
  const { checks } = JSON.parse(stdout) as { checks: Line[] };
  const worst = (check: string) => checks.filter((line) => line.check === check);
  return { status, lines: checks, of: (check) => worst(check).find(({ state }) => state !== 'ok') ?? worst(check)[0] };
}
const failures = (lines: readonly Line[]) => lines.filter(({ state }) => state === 'failure');

describe('secrets', { timeout: PATIENCE_MS }, () => {
  it.for(['files', 'systemd'] as const)(
    'stored as %s work with setup, check, restart, reload and doctor',
    async (how) => {
      const done = await setup(how);
      expect(done, done.stderr).toMatchObject({ status: 0 });
      expect(done.stderr).toContain(
        how === 'files' ? 'sudo systemctl start tagferry' : 'sudo systemctl restart tagferry',
      );
      expect(await tagferry('check')).toMatchObject({ status: 0 });
      expect(await systemctl('restart', UNIT)).toMatchObject({ status: 0 });
      expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online/);
      expect(await systemctl('reload', UNIT)).toMatchObject({ status: 0 });
      const { status, lines } = await doctor();
      expect(failures(lines)).toEqual([]);
      expect(status).toBe(0);
    },
  );

  it('leave no unit that requires encrypted secrets once they are stored as files again', async () => {
    expect(await setup('files')).toMatchObject({ status: 0 });
    expect(await systemctl('restart', UNIT)).toMatchObject({ status: 0 });
    expect(await gateway.machine.property(UNIT, 'UnitFileState')).toBe('enabled');
    good = gateway.machine.read(ENV);
  });

  it('stored in agent.env work with check, restart and reload', async () => {
    await gateway.machine.sh(`mkdir /root/kept; mv ${CREDENTIALS}/* /root/kept/`);
    write(
      ENV,
      // Without the empty keys that setup writes, with a reference to the secret files.
      `${good}CLIENT_SECRET=sandbox-secret\nTECHNICAL_PASSWORD=gateway-password\n`.replace(
        /^(CLIENT_SECRET|TECHNICAL_PASSWORD)=('')?( #.*)?\n/gm,
        '',
      ),
    );
    expect(await tagferry('check')).toMatchObject({ status: 0 });
    expect(await systemctl('restart', UNIT)).toMatchObject({ status: 0 });
    expect(await systemctl('reload', UNIT)).toMatchObject({ status: 0 });
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online/);
    write(ENV, good);
    await gateway.machine.sh(`mv /root/kept/* ${CREDENTIALS}/; systemctl restart ${UNIT}`);
  });

  it('require a restart, according to reload, status and doctor, if they are corrected after startup', async () => {
    write(`${CREDENTIALS}/technical_password`, 'another-password\n', 0o600);
    const reloaded = await tagferry('reload');
    expect(reloaded.status).toBe(0);
    expect(reloaded.stderr).toMatch(/technical_password.*systemctl restart tagferry/s);
    expect((await tagferry('status')).stdout).toMatch(/credential technical_password/);
    const { status, of } = await doctor();
    expect(status).toBe(1);
    expect(of('configuration.in_force')).toMatchObject({ state: 'failure', next: expect.stringContaining('restart') });
    write(`${CREDENTIALS}/technical_password`, 'gateway-password\n', 0o600);
    await systemctl('restart', UNIT);
    expect((await doctor()).status).toBe(0);
  });
});

describe('tagferry logs', { timeout: PATIENCE_MS }, () => {
  const lines = (text: string) =>
    text
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>);

  it('follows the journal across a restart without missing a line', async () => {
    await gateway.machine.sh(
      `systemd-run --quiet --unit=reader sh -c 'exec tagferry logs --lines 1 --json >/root/followed'`,
    );
    await until(
      'the source is reading values',
      () => gateway.machine.exists('/root/followed') && gateway.machine.read('/root/followed') !== '',
    );
    await gateway.machine.sh(`systemctl restart ${UNIT}; systemctl restart ${UNIT}`);
    const ready = () => lines(gateway.machine.read('/root/followed')).filter(({ event }) => event === 'agent.ready');
    await until('both starts are in the journal', () => ready().length === 2);
    await gateway.machine.sh('systemctl stop reader');
    const followed = lines(gateway.machine.read('/root/followed'));
    const all = lines((await tagferry('logs', '--no-follow', '--since', '1h', '--json')).stdout);
    const from = all.findIndex((line) => line.time === followed[0]!.time && line.msg === followed[0]!.msg);
    expect(from).toBeGreaterThanOrEqual(0);
    expect(followed).toEqual(all.slice(from, from + followed.length));
    // Includes messages of systemd about the service.
    expect(followed.some(({ from: who }) => who === 'systemd')).toBe(true);
  });

  it('filters by level, event, asset of a tag, and time', async () => {
    await gateway.sandbox('POST', 'faults', { method: 'POST', path: '/v1/assets/881/values', status: 403 });
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status).toBe(204);
    const held = () => tagferry('logs', '--no-follow', '--tag', 'FT-101', '--event', 'access.*', '--json');
    await until('it is held', async () => lines((await held()).stdout).some(({ event }) => event === 'access.held'));
    await gateway.sandbox('DELETE', 'faults');
    const none = await tagferry('logs', '--no-follow', '--since', '2999-01-01', '--json');
    expect(none).toMatchObject({ status: 0, stdout: '' });
    const levels = lines((await tagferry('logs', '--no-follow', '--level', 'warn', '--since', '1h', '--json')).stdout);
    expect(new Set(levels.map(({ level }) => level)).has('info')).toBe(false);
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
  });
});

describe('replaced gateway', { timeout: PATIENCE_MS }, () => {
  it('keeps its encrypted credentials, owners and drop-ins through backup and restore', async () => {
    expect(await setup('systemd')).toMatchObject({ status: 0 });
    write(
      '/etc/systemd/system/tagferry.service.d/site.conf',
      '[Service]\nEnvironment=SITE=here\nEnvironmentFile=-/etc/default/site\n',
    );
    await systemctl('daemon-reload');
    await systemctl('restart', UNIT);
    await gateway.sandbox('POST', 'offline', { mode: 503 });
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 42.5 }])).status).toBe(204);
    const made = await tagferry('backup', '/root/gateway.tar');
    expect(made, made.stderr).toMatchObject({ status: 0 });
    expect(made.stdout).toMatch(/^Not included: \/etc\/default\/site \(.*copy it/m);
    expect(await gateway.machine.sh('stat -c "%a %U" /root/gateway.tar')).toBe('600 root');
    // The hardware fails. The replacement gateway has no state.
    await gateway.machine.sh(`
      systemctl kill -s KILL ${UNIT}; systemctl stop ${UNIT}
      rm -rf /var/lib/tagferry /etc/tagferry /etc/systemd/system/tagferry.service.d /var/lib/systemd/credential.secret
      mkdir /etc/tagferry; systemctl daemon-reload`);
    const refused = await gateway.machine.run([
      'setpriv',
      '--reuid=nobody',
      '--clear-groups',
      'tagferry',
      'restore',
      '/root/gateway.tar',
    ]);
    expect(refused.status).toBe(1);
    const restored = await tagferry('restore', '--yes', '/root/gateway.tar');
    expect(restored, restored.stdout + restored.stderr).toMatchObject({ status: 0 });
    expect(await gateway.machine.sh('stat -c "%a %U:%G" /etc/tagferry/agent.env')).toBe('640 root:tagferry');
    expect(await gateway.machine.sh('stat -c "%a %U" /var/lib/tagferry /var/lib/tagferry/buffer.db')).toBe(
      '700 tagferry\n600 tagferry',
    );
    expect(gateway.machine.read('/etc/systemd/system/tagferry.service.d/site.conf')).toContain('SITE=here');
    await gateway.sandbox('POST', 'online');
    await systemctl('daemon-reload');
    expect(await systemctl('start', UNIT)).toMatchObject({ status: 0 });
    await until('the value arrives', async () => {
      const asked = { asset: 881, key: 'flow', sent: [] };
      const { invented } = await gateway.sandbox<{ invented: number[] }>('POST', 'values/compare', asked);
      return invented.length > 0;
    });
    const { status, lines: checks } = await doctor();
    expect(failures(checks)).toEqual([]);
    expect(status).toBe(0);
  });

  it('can be decommissioned with encrypted credentials without a running agent', async () => {
    write(
      ENV,
      `${gateway.machine.read(ENV)}WEBHOOK_URL=http://127.0.0.1:8471/hook\n`.replace(/^WEBHOOK_URL=''?$\n/gm, ''),
    );
    await systemctl('restart', UNIT);
    const webhooks = () => gateway.sandbox<{ webhooks: number }>('GET', 'status');
    // Waits for the agent, because the platform has the webhook before the agent has stored it.
    const told = `journalctl -u ${UNIT} -o cat --no-pager | grep -c webhook.created || true`;
    await until('the webhook is registered', async () => (await gateway.machine.sh(told)) !== '0');
    expect((await webhooks()).webhooks).toBe(1);
    await systemctl('stop', UNIT);
    const done = await tagferry('decommission', '--yes', '--lose-values');
    expect(done, done.stdout + done.stderr).toMatchObject({ status: 0 });
    expect((await webhooks()).webhooks).toBe(0);
    // Restores the service for the following tests.
    expect(await setup('files')).toMatchObject({ status: 0 });
    write(ENV, good);
    await systemctl('restart', UNIT);
  });
});

describe('check and doctor', { timeout: PATIENCE_MS }, () => {
  it.for([
    [
      'an agent.env that only root can read',
      'chmod 600 /etc/tagferry/agent.env; chown root:root /etc/tagferry/agent.env',
      /agent\.env.*cannot be read.*chown root:tagferry/,
    ],
    [
      'a CA file below /root',
      'echo PLATFORM_CA=/root/ca.pem >>/etc/tagferry/agent.env; cp /root/pem /root/ca.pem',
      /PLATFORM_CA.*permission denied.*\/root\/ca\.pem.*\/etc\/tagferry/,
    ],
  ] as const)('report %s, although root can read it', async ([, spoil, problem]) => {
    write('/root/pem', '-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n');
    await gateway.machine.sh(spoil);
    const checked = await tagferry('check');
    expect(checked.status).toBe(78);
    expect(checked.stdout).toMatch(problem);
    const { status, of } = await doctor();
    expect(status).toBe(1);
    expect(of('configuration')).toMatchObject({ state: 'failure', message: expect.stringMatching(problem) });
    write(ENV, good);
    await gateway.machine.sh('chown root:tagferry /etc/tagferry/agent.env; chmod 640 /etc/tagferry/agent.env');
    expect((await tagferry('check')).status).toBe(0);
  });

  it('recommend permissions for an agent.env with secrets that the service can still read', async () => {
    await gateway.machine.sh('echo INGEST_TOKEN=abc >>/etc/tagferry/agent.env; chmod 644 /etc/tagferry/agent.env');
    const { stdout } = await tagferry('check');
    const advice = /run: (chown root:tagferry \S+ && chmod 640 \S+)/.exec(stdout)?.[1];
    await gateway.machine.sh(advice!);
    expect(await tagferry('check')).toMatchObject({
      status: 0,
      stdout: expect.not.stringContaining('other users can read'),
    });
    expect(await systemctl('reload', UNIT)).toMatchObject({ status: 0 });
    write(ENV, good);
    await systemctl('reload', UNIT);
  });

  it('report a port below 1024, and the error of a repeatedly failing service', async () => {
    write(ENV, `${good}INGEST_LISTEN=127.0.0.1:81\n`);
    await gateway.machine.run(['systemctl', 'restart', '--no-block', UNIT]);
    await until('the service was restarted', async () => (await gateway.restarts()) > 0);
    const { status, of } = await doctor();
    expect(status).toBe(1);
    expect(of('service')).toMatchObject({
      state: 'failure',
      message: expect.stringMatching(/EACCES|may not|not allowed/),
    });
    expect(of('listener')).toMatchObject({ state: 'failure', message: expect.stringContaining('EACCES') });
    write(ENV, good);
  });

  it('report stores created by root, which the service cannot open', async () => {
    await gateway.machine.sh(`systemctl stop ${UNIT}; chown root: /var/lib/tagferry/*; chmod 600 /var/lib/tagferry/*`);
    await gateway.machine.run(['systemctl', 'restart', '--no-block', UNIT]);
    const { status, of } = await doctor();
    expect(status).toBe(1);
    const owner = of('state.owner');
    expect(owner).toMatchObject({ state: 'failure', next: expect.stringContaining('chown -R tagferry') });
    await gateway.machine.sh(
      `systemctl stop ${UNIT}; chown -R tagferry:tagferry /var/lib/tagferry; systemctl start ${UNIT}`,
    );
    expect((await doctor()).of('state.owner')).toBeUndefined();
  });
});

describe('unknown platform id', { timeout: PATIENCE_MS }, () => {
  it('is reported for a unit by status and doctor with series, message and command, not as an outage', async () => {
    const tags = gateway.machine.read('/etc/tagferry/tags.yaml');
    // Values of another asset are accepted, so this is not an outage.
    const other = '  FT-102:\n    asset: 882\n    values: { flow: { unit: 12 } }\n';
    write('/etc/tagferry/tags.yaml', `${tags.replace('unit: 12', 'unit: 999999')}\n${other}`);
    expect(await systemctl('restart', UNIT)).toMatchObject({ status: 0 });
    const values = Array.from({ length: 12 }, (_, i) => ({ tag: 'FT-101', key: 'flow', value: i }));
    expect((await gateway.push(values)).status).toBe(204);
    await until('the series is held back', async () => {
      await gateway.push([{ tag: 'FT-102', key: 'flow', value: 1 }]);
      return /rejected with 4\d\d/.test((await tagferry('status')).stdout);
    });
    const { stdout } = await tagferry('status');
    expect(stdout).toMatch(/FT-101 flow \(asset 881, unit 999999\)\s+rejected with/);
    expect(stdout).toMatch(/tagferry buffer requeue --tag\s+FT-101/);
    expect(stdout).not.toContain('platform unavailable');
    const { status, of } = await doctor();
    expect(status).toBe(1);
    expect(of('series')).toMatchObject({ state: 'failure', message: expect.stringContaining('unit 999999') });
    expect(of('quarantine')).toMatchObject({ state: 'warning', next: expect.stringContaining('requeue') });
    write('/etc/tagferry/tags.yaml', tags);
    await systemctl('restart', UNIT);
  });

  it('is reported for an instrumentation by doctor and check --online', async () => {
    const tags = gateway.machine.read('/etc/tagferry/tags.yaml');
    write('/etc/tagferry/tags.yaml', tags.replace('instrumentation: 4711', 'instrumentation: 999999'));
    expect(await systemctl('reload', UNIT)).toMatchObject({ status: 0 });
    expect((await doctor()).of('instrumentations')).toMatchObject({
      state: 'warning',
      message: expect.stringContaining('999999'),
    });
    const online = await tagferry('check', '--online');
    expect(online.stdout).toMatch(/instrumentation 999999/);
    expect(online.stdout).toMatch(/units and keys only when it receives the first value/);
    write('/etc/tagferry/tags.yaml', tags);
    await systemctl('reload', UNIT);
  });
});

describe('unattended upgrade', { timeout: PATIENCE_MS }, () => {
  it('does not prompt if templates changed, preserves changed and deleted files, and lists new settings', async () => {
    const tree = join(folder, 'newer');
    await run('dpkg-deb', ['--raw-extract', deb, tree]);
    const template = join(tree, 'usr/share/tagferry/agent.env');
    writeFileSync(
      template,
      readFileSync(template, 'utf8').replace('POST_INTERVAL=10s', 'POST_INTERVAL=9s\n# New.\n#BRAND_NEW_KEY=1'),
    );
    const control = join(tree, 'DEBIAN/control');
    writeFileSync(control, readFileSync(control, 'utf8').replace('Version: 0.0.1', 'Version: 0.0.2'));
    const newer = join(folder, 'newer.deb');
    await run('dpkg-deb', ['--root-owner-group', '-Znone', '--build', tree, newer]);

    await gateway.machine.sh('rm /etc/tagferry/reactions.yaml; sed -i "1i # mine" /etc/tagferry/tags.yaml');
    const tags = gateway.machine.read('/etc/tagferry/tags.yaml');
    const pid = await gateway.mainPid();
    const said = await gateway.install(newer, 'apt');
    expect(said).toContain('BRAND_NEW_KEY');
    expect(said).not.toContain(' POST_INTERVAL');
    expect(await gateway.machine.sh('dpkg -s tagferry')).toMatch(
      /^Status: install ok installed\n[\s\S]*^Version: 0\.0\.2$/m,
    );
    expect(gateway.machine.read(ENV)).toBe(good);
    expect(gateway.machine.read('/etc/tagferry/tags.yaml')).toBe(tags);
    expect(gateway.machine.exists('/etc/tagferry/reactions.yaml')).toBe(false);
    await gateway.restarted(pid);
    expect(await tagferry('check')).toMatchObject({ status: 0 });
    expect(await gateway.machine.property(UNIT, 'UnitFileState')).toBe('enabled');
  });
});
