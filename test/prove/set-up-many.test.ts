// Long: 4 min
/**
 * The examples for setting up many gateways (config/examples), run on machines without tagferry: Ansible and cloud-init
 * of Debian, a signed repository, the sandbox as the platform.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { SANDBOX_CREDENTIALS } from '../../src/sandbox/sandbox.ts';
import { debianTreeWith } from '../host/debian-tree.ts';
import { Gateway, packageOf } from '../host/gateway.ts';
import { until } from '../host/machine.ts';
import { CHECKOUT } from '../host/made-once.ts';
import { makeRepository } from './repository.ts';

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
  await makeRepository({
    deb,
    repository: join(folder, 'repository'),
    keyring: join(folder, 'keyring.gpg'),
    gnupg: join(folder, 'gnupg'),
  });
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
  // Without a network, no Debian packages are available.
  await machine.sh(
    'rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; dpkg-deb -x /srv/repository/pool/*.deb /opt/unpacked',
  );
  await gateway.startSandbox('/opt/unpacked/usr/lib/tagferry');
}, PATIENCE_MS);

afterEach(() => gateway?.stop());

/** The gateway runs with the given configuration, and its values are on the platform. */
async function expectAtWork(): Promise<void> {
  const { machine } = gateway;
  expect(await machine.property('tagferry.service', 'ActiveState')).toBe('active');
  expect(await machine.property('tagferry.service', 'UnitFileState')).toBe('enabled');
  const check = await machine.run(['env', 'TAGFERRY_ASSET=881', 'tagferry', 'check', '--json']);
  expect(JSON.parse(check.stdout)).toMatchObject({ ok: true });
  await until('the machine’s load is on the platform', async () => {
    const { stored } = await gateway.sandbox<{ stored: number }>('GET', 'values?asset=881');
    return stored > 0;
  });
  // Only root can read the secrets, in the form that this systemd supports, and no other file contains them.
  const open = await machine.run(['grep', '-rlF', '--exclude-dir=credentials', clientSecret, '/etc/tagferry']);
  expect(open.stdout).toBe('');
  expect(await machine.sh('stat -c "%a %U" /etc/tagferry/credentials/client_secret*')).toBe('600 root');
}

describe('new gateway', { timeout: PATIENCE_MS }, () => {
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

  it('is set up by cloud-init on first boot', async () => {
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
    // The tree has no locales and no network.
    const seed = 'datasource_list: [NoCloud]\nnetwork: { config: disabled }\nlocale: false\n';
    machine.write('/etc/cloud/cloud.cfg.d/99-seed.cfg', seed);
    // The four stages of a boot, in the order in which its units run them.
    const stages = ['init --local', 'init', 'modules --mode=config', 'modules --mode=final'];
    for (const stage of stages) await machine.run(['sh', '-c', `cloud-init ${stage}`], { timeoutMs: PATIENCE_MS });
    const log = machine.read('/var/log/cloud-init-output.log');
    const result = JSON.parse(machine.read('/run/cloud-init/result.json')) as { v1: { errors: string[] } };
    expect(result.v1.errors, log).toEqual([]);
    expect(log).not.toContain(clientSecret);
    await expectAtWork();
  });
});
