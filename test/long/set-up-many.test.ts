// Long: 5 min
/** The examples for setting up many gateways (config/examples), played on machines that have nothing of tagferry yet: Ansible and cloud-init
 * of Debian, a signed repository, the sandbox as the platform. */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { SANDBOX_CREDENTIALS } from '../../src/sandbox/sandbox.ts';
import { debianTreeWith } from '../system/debian-tree.ts';
import { Gateway, packageOf } from '../system/gateway.ts';
import { until } from '../system/machine.ts';
import { CHECKOUT } from '../system/made-once.ts';

const run = promisify(execFile);
const EXAMPLES = join(CHECKOUT, 'config/examples');
const PLATFORM = 'http://127.0.0.1:8480';
const REPOSITORY = 'file:/srv/repository';
const PATIENCE_MS = 600_000;
const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;

let folder: string;
let tree: string;
let deb: string;
let gateway: Gateway;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-many-'));
  deb = await packageOf({ version: '0.0.1' });
  tree = await debianTreeWith('many', ['ansible-core', 'python3-apt', 'cloud-init']);
  await makeRepository();
}, PATIENCE_MS);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

beforeEach(async () => {
  gateway = await Gateway.boot(tree);
  const { machine } = gateway;
  for (const name of readdirSync(join(folder, 'repository'), { recursive: true, withFileTypes: true })) {
    if (!name.isFile()) continue;
    const path = join(name.parentPath, name.name);
    machine.put(path, join('/srv/repository', path.slice(join(folder, 'repository').length)));
  }
  // No network: of Debian's own packages there is nothing to be had.
  await machine.sh(
    'rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; dpkg-deb -x /srv/repository/pool/*.deb /opt/unpacked',
  );
  await gateway.startSandbox('/opt/unpacked/usr/lib/tagferry');
}, PATIENCE_MS);

afterEach(() => gateway?.stop());

/** As scripts/release makes it, with a key of today. */
async function makeRepository(): Promise<void> {
  const repository = join(folder, 'repository');
  mkdirSync(join(repository, 'pool'), { recursive: true });
  copyFileSync(deb, join(repository, 'pool', basename(deb)));
  const seconds = String(Math.floor(Date.now() / 1_000));
  await run(join(CHECKOUT, 'scripts/release.d/apt-index'), [repository, seconds]);
  const env = { ...process.env, GNUPGHOME: join(folder, 'gnupg') };
  mkdirSync(env.GNUPGHOME, { mode: 0o700 });
  const gpg = (...args: string[]) => run('gpg', ['--batch', '--quiet', ...args], { env });
  await gpg('--passphrase', '', '--quick-generate-key', 'release@tagferry.invalid', 'ed25519', 'sign', 'never');
  await gpg('--export', '--output', join(folder, 'keyring.gpg'));
  const stable = join(repository, 'dists/stable');
  await gpg('--clearsign', '--output', join(stable, 'InRelease'), join(stable, 'Release'));
  await run('gpgconf', ['--kill', 'all'], { env });
}

/** The gateway runs, with what it was given, and its values are with the platform. */
async function expectAtWork(): Promise<void> {
  const { machine } = gateway;
  expect(await machine.property('tagferry.service', 'ActiveState')).toBe('active');
  expect(await machine.property('tagferry.service', 'UnitFileState')).toBe('enabled');
  const check = await machine.run(['env', 'TAGFERRY_ASSET=881', 'tagferry', 'check', '--json']);
  expect(JSON.parse(check.stdout)).toMatchObject({ ok: true });
  await until('the load of the machine is with the platform', async () => {
    const { series } = await gateway.sandbox<{ series: unknown[] }>('GET', 'values/series');
    return JSON.stringify(series).includes('load');
  });
  // The secrets are where only root reads them, by whichever way this systemd has, and in no other file.
  const open = await machine.run(['grep', '-rlF', '--exclude-dir=credentials', clientSecret, '/etc/tagferry']);
  expect(open.stdout).toBe('');
  expect(await machine.sh('stat -c "%a %U" /etc/tagferry/credentials/client_secret*')).toBe('600 root');
}

describe('a gateway that has nothing yet', { timeout: PATIENCE_MS }, () => {
  it('is set up by the Ansible role, and a second run changes nothing', async () => {
    const { machine } = gateway;
    const ansible = join(EXAMPLES, 'ansible');
    for (const entry of readdirSync(ansible, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      if (entry.isFile()) machine.put(path, join('/root/play', path.slice(ansible.length)));
    }
    machine.put(join(folder, 'keyring.gpg'), '/root/play/keyring.gpg');
    machine.write('/root/play/inventory', '[gateways]\nlocalhost ansible_connection=local\n');
    const variables = {
      tagferry_repository: REPOSITORY,
      tagferry_keyring: '/root/play/keyring.gpg',
      tagferry_platform_url: PLATFORM,
      tagferry_client_id: clientId,
      tagferry_technical_username: technicalUsername,
      tagferry_client_secret: clientSecret,
      tagferry_technical_password: technicalPassword,
      tagferry_settings: { POST_INTERVAL: '1s' },
    };
    machine.write('/root/play/vault.yml', stringify(variables), 0o600);
    const play = async () => {
      const script = 'cd /root/play && ansible-playbook -i inventory -e @vault.yml site.yml 2>&1';
      const { status, stdout } = await machine.run(['sh', '-c', script], { timeoutMs: PATIENCE_MS });
      expect(`${status} ${stdout}`).toMatch(/^0 /);
      expect(stdout).not.toContain(clientSecret);
      return /changed=(\d+)/.exec(stdout)?.[1];
    };
    expect(await play()).not.toBe('0');
    await expectAtWork();
    expect(await play()).toBe('0');
    await expectAtWork();
  });

  it('is set up by cloud-init from the seed of its first boot', async () => {
    const { machine } = gateway;
    const example = parse(readFileSync(join(EXAMPLES, 'cloud-init.yaml'), 'utf8')) as {
      write_files: { path: string; content: string }[];
    };
    const file = (path: string) => example.write_files.find((one) => one.path === path)!;
    const replaced = (path: string, ...pairs: [RegExp, string][]) => {
      for (const [what, by] of pairs) {
        expect(file(path).content).toMatch(what);
        file(path).content = file(path).content.replace(what, by);
      }
    };
    replaced('/etc/apt/sources.list.d/tagferry.list', [/https:\S+/, REPOSITORY]);
    file('/etc/apt/keyrings/tagferry.gpg').content = readFileSync(join(folder, 'keyring.gpg')).toString('base64');
    replaced(
      '/root/tagferry-answers.env',
      [/(?<=PLATFORM_URL=).*/, PLATFORM],
      [/(?<=CLIENT_ID=).*/, clientId],
      [/(?<=TECHNICAL_USERNAME=).*/, technicalUsername],
    );
    machine.write('/run/secrets/client-secret', `${clientSecret}\n`, 0o600);
    machine.write('/run/secrets/technical-password', `${technicalPassword}\n`, 0o600);
    machine.write('/var/lib/cloud/seed/nocloud/meta-data', 'instance-id: gateway-1\nlocal-hostname: gateway\n');
    machine.write('/var/lib/cloud/seed/nocloud/user-data', `#cloud-config\n${stringify(example)}`);
    // The tree has no locales, and nobody waits for its network.
    const seed = 'datasource_list: [NoCloud]\nnetwork: { config: disabled }\nlocale: false\n';
    machine.write('/etc/cloud/cloud.cfg.d/99-seed.cfg', seed);
    // The four stages of a boot, one after the other, as its units run them.
    const stages = ['init --local', 'init', 'modules --mode=config', 'modules --mode=final'];
    for (const stage of stages) await machine.run(['sh', '-c', `cloud-init ${stage}`], { timeoutMs: PATIENCE_MS });
    const log = machine.read('/var/log/cloud-init-output.log');
    const result = JSON.parse(machine.read('/run/cloud-init/result.json')) as { v1: { errors: string[] } };
    expect(result.v1.errors, log).toEqual([]);
    expect(log).not.toContain(clientSecret);
    await expectAtWork();
  });
});
