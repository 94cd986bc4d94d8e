// Long: 4 min
/**
 * The Ansible role of config/examples, applied to three booted gateways: a rollout, one with a file that `check`
 * rejects, and one with a file that `check` accepts but that leaves the gateway offline.
 */
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { SANDBOX_CREDENTIALS } from '../../src/sandbox/sandbox.ts';
import { debianTreeWith } from '../host/debian-tree.ts';
import { Gateway, packageOf } from '../host/gateway.ts';
import { CHECKOUT } from '../host/made-once.ts';
import { makeRepository } from './repository.ts';

const run = promisify(execFile);
const PLATFORM = 'http://127.0.0.1:8480';
const PATIENCE_MS = 900_000;
const NAMES = ['gw-1', 'gw-2', 'gw-3'];
const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;

let folder: string;
let play: string;
const gateways: Gateway[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-rollout-'));
  play = join(folder, 'play');
  const deb = await packageOf({ version: '0.0.1' });
  const repository = join(folder, 'repository');
  await makeRepository({ deb, repository, keyring: join(folder, 'keyring.gpg'), gnupg: join(folder, 'gnupg') });
  const tree = await debianTreeWith('many', ['ansible-core', 'python3-apt', 'cloud-init']);
  cpSync(join(CHECKOUT, 'config/examples/ansible'), play, { recursive: true });
  // The ssh command of this rollout enters the gateway's namespaces, because the machines have no network.
  const ssh = join(folder, 'ssh');
  const hosts: string[] = [];
  for (const name of NAMES) {
    const gateway = await Gateway.boot(tree);
    gateways.push(gateway);
    const { machine } = gateway;
    for (const entry of readdirSync(repository, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      if (entry.isFile()) machine.put(path, join('/srv/repository', path.slice(repository.length)));
    }
    await machine.sh(`
      rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
      hostname ${name}
      dpkg-deb -x /srv/repository/pool/${basename(deb)} /opt/unpacked`);
    await gateway.startSandbox('/opt/unpacked/usr/lib/tagferry');
    hosts.push(
      `${name}) exec ${machine
        .entering()
        .map((word) => `'${word}'`)
        .join(' ')} sh -c "$command" ;;`,
    );
  }
  writeFileSync(
    ssh,
    `#!/bin/bash
for command; do :; done
for word; do case $word in
${hosts.join('\n')}
esac; done
exit 255
`,
    { mode: 0o755 },
  );
  writeFileSync(
    join(play, 'inventory'),
    `[gateways]\n${NAMES.join('\n')}\n[gateways:vars]\nansible_ssh_executable=${ssh}\nansible_ssh_transfer_method=piped\nansible_user=root\n`,
  );
  mkdirSync(join(folder, 'ansible'));
}, PATIENCE_MS);

afterAll(async () => {
  for (const gateway of gateways) await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function rollOut(changes: Record<string, unknown> = {}): Promise<{ status: number; text: string }> {
  const variables = {
    tagferry_repository: 'file:/srv/repository',
    tagferry_keyring: join(folder, 'keyring.gpg'),
    tagferry_platform_url: PLATFORM,
    tagferry_client_id: clientId,
    tagferry_technical_username: technicalUsername,
    tagferry_client_secret: clientSecret,
    tagferry_technical_password: technicalPassword,
    tagferry_settings: { POST_INTERVAL: '1s' },
    tagferry_gate_attempts: 15,
    ...changes,
  };
  writeFileSync(join(folder, 'vault.yml'), stringify(variables), { mode: 0o600 });
  const args = ['-i', 'inventory', '-e', `@${join(folder, 'vault.yml')}`, 'site.yml'];
  const env = {
    ...process.env,
    LC_ALL: 'C.UTF-8',
    ANSIBLE_HOME: join(folder, 'ansible'),
    ANSIBLE_LOCAL_TEMP: join(folder, 'ansible'),
    ANSIBLE_NOCOLOR: '1',
  };
  const { status, text } = await run('ansible-playbook', args, {
    cwd: play,
    env,
    timeout: PATIENCE_MS,
    maxBuffer: 64_000_000,
  }).then(
    ({ stdout, stderr }) => ({ status: 0, text: stdout + stderr }),
    (error: { code: number; stdout: string; stderr: string }) => ({
      status: error.code,
      text: error.stdout + error.stderr,
    }),
  );
  expect(text).not.toContain(clientSecret);
  expect(text).not.toContain(technicalPassword);
  return { status, text };
}

/** State of a gateway that a rollout can change: files with content, modes and owners, and the agent process. */
async function stateOf({ machine }: Gateway): Promise<string> {
  return machine.sh(`
    find /etc/tagferry /etc/systemd/system/tagferry.service.d -type f -exec stat -c '%n %a %U' {} + -exec sha256sum {} + | sort
    systemctl show --value -p MainPID tagferry`);
}

async function isOnline({ machine }: Gateway): Promise<boolean> {
  const { stdout } = await machine.run(['tagferry', 'status', '--json']);
  const { state, configuration } = JSON.parse(stdout) as { state: string; configuration: { changed_files: string[] } };
  return state === 'online' && configuration.changed_files.length === 0;
}

const withoutProcess = (state: string) => state.replace(/\n\d+$/, '');

describe('rollout by the Ansible role', { timeout: PATIENCE_MS }, () => {
  it('brings three gateways online, one batch after another', async () => {
    const { status, text } = await rollOut();
    expect(`${status} ${text}`).toMatch(/^0 /);
    for (const gateway of gateways) expect(await isOnline(gateway)).toBe(true);
  });

  it('leaves every gateway unchanged if check rejects the files', async () => {
    const before = await Promise.all(gateways.map(stateOf));
    const template = join(play, 'roles/tagferry/templates/site.yaml.j2');
    const previous = readFileSync(template, 'utf8');
    writeFileSync(template, previous.replace('reading: load1', 'reading: lode1'));
    const { status, text } = await rollOut();
    writeFileSync(template, previous);
    expect(status).not.toBe(0);
    expect(text).toMatch(/Failed task: Run setup[\s\S]*lode1/);
    // The first batch failed, so the other gateways were not part of the play.
    expect(text).not.toMatch(/gw-[23]\s+: ok/);
    expect(await Promise.all(gateways.map(stateOf))).toEqual(before);
    for (const gateway of gateways) expect(await isOnline(gateway)).toBe(true);
  });

  it('restores the previous files of the first gateway if it does not come online, and changes no other gateway', async () => {
    const before = await Promise.all(gateways.map(stateOf));
    const template = join(play, 'roles/tagferry/templates/site.conf.j2');
    const previous = readFileSync(template, 'utf8');
    // Setup and check run without the unit's environment.
    writeFileSync(template, `${previous}Environment=PLATFORM_URL=http://127.0.0.1:9\n`);
    const { status, text } = await rollOut();
    writeFileSync(template, previous);
    expect(status).not.toBe(0);
    expect(text).toContain('Failed task: Wait until the gateway is online');
    const after = await Promise.all(gateways.map(stateOf));
    expect(after.map(withoutProcess)).toEqual(before.map(withoutProcess));
    expect(after.slice(1)).toEqual(before.slice(1));
    await expect.poll(() => isOnline(gateways[0]!), { timeout: 120_000, interval: 1_000 }).toBe(true);
  });

  it('brings all gateways online once the files are correct', async () => {
    const { status, text } = await rollOut({ tagferry_settings: { POST_INTERVAL: '2s' } });
    expect(`${status} ${text}`).toMatch(/^0 /);
    for (const { machine } of gateways) expect(machine.read('/etc/tagferry/agent.env')).toContain('\nPOST_INTERVAL=2s');
    for (const gateway of gateways) expect(await isOnline(gateway)).toBe(true);
  });
});
