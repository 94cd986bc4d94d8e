import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { debianTree } from './debian-tree.ts';
import { Gateway, packageOf } from './gateway.ts';
import { until } from './machine.ts';
import { CHECKOUT } from './made-once.ts';

/** More than a slow machine requires; no test asserts a duration. */
const PATIENCE_MS = 300_000;

const UNIT = 'tagferry.service';
const TAGS = '/etc/tagferry/tags.yaml';

let gateway: Gateway;
const { version: VERSION } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
let older: string;
let newer: string;

beforeAll(async () => {
  const packages = async () => [await packageOf({ version: '0.0.1' }), await packageOf()] as const;
  // One compiles while the other downloads.
  [[older, newer]] = await Promise.all([packages(), debianTree()]);
  gateway = await Gateway.boot();
}, 1_200_000);

afterAll(async () => {
  await gateway?.stop();
});

/** State inside the machine after a failure. */
afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  process.stderr.write(
    `${await gateway.machine.sh('journalctl --no-pager -n 60 2>&1; dpkg -l tagferry 2>&1 || true')}\n`,
  );
});

describe('new package', { timeout: PATIENCE_MS }, () => {
  it('installs with apt without a network, and reports missing configuration', async () => {
    const said = await gateway.install(older, 'apt');
    expect(said).toContain('tagferry setup');
    // If the machine boots before `setup`, no unit fails.
    expect(await gateway.machine.property(UNIT, 'UnitFileState')).toBe('disabled');
  });

  it('does not start an unconfigured service, and refers to setup', async () => {
    expect((await gateway.machine.run(['systemctl', 'start', UNIT])).status).not.toBe(0);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('failed');
    expect(await gateway.machine.property(UNIT, 'ExecMainStatus')).toBe('78');
    expect(await gateway.restarts()).toBe(0);
    expect((await gateway.machine.run(['systemctl', 'status', UNIT])).stdout).toContain('tagferry setup');
  });

  it('makes agent.env readable by root and the service, and secrets by root only', async () => {
    const modes = await gateway.machine.sh('stat -c "%a %U:%G" /etc/tagferry/agent.env /etc/tagferry/credentials');
    expect(modes.split('\n')).toEqual(['640 root:tagferry', '711 root:root']);
  });

  it('keeps the agent running when the kernel kills a command that exhausts memory', async () => {
    expect(await gateway.machine.property(UNIT, 'OOMPolicy')).toBe('continue');
  });

  it('contains a manual page, shell completion, and a command that reports its version', async () => {
    expect(await gateway.machine.sh('tagferry --version')).toBe('0.0.1');
    expect(gateway.machine.exists('/usr/share/man/man1/tagferry.1.gz')).toBe(true);
    const completed = await gateway.machine.sh(`bash -c '
      . /usr/share/bash-completion/completions/tagferry
      COMP_WORDS=(tagferry ru) COMP_CWORD=1; _tagferry; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(tagferry sandbox --lis) COMP_CWORD=2; _tagferry; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(tagferry webhook rot) COMP_CWORD=2; _tagferry; echo "\${COMPREPLY[@]}"'`);
    expect(completed.split('\n')).toEqual(['run', '--listen', 'rotate-secret']);
  });
});

describe('configured gateway', { timeout: PATIENCE_MS }, () => {
  it('is ready when systemctl start returns, with a dedicated user and both secrets from credentials', async () => {
    await gateway.startSandbox();
    await gateway.configure();
    // As `tagferry setup` does.
    await gateway.machine.sh(`systemctl enable --now ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'SubState')).toBe('running');
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online$/);
    expect(await gateway.machine.sh(`stat -c %U /proc/${await gateway.mainPid()}`)).toBe('tagferry');
    expect(await gateway.machine.sh('stat -c "%a %U" /var/lib/tagferry')).toBe('700 tagferry');
  });

  it('has an exposure of 1.5 or lower according to systemd-analyze security', async () => {
    const table = await gateway.machine.sh(`systemd-analyze security --no-pager ${UNIT}`);
    const exposure = /Overall exposure level for \S+: ([0-9.]+)/.exec(table)?.[1];
    expect(Number(exposure)).toBeLessThanOrEqual(1.5);
  });

  it('is restarted by systemd after kill -9, and every acknowledged value arrives', async () => {
    await gateway.startPusher();
    for (let kill = 0; kill < 3; kill++) {
      await gateway.pushed(200);
      const pid = await gateway.mainPid();
      await gateway.machine.sh(`kill -KILL ${pid}`);
      await gateway.restarted(pid);
    }
    await gateway.pushed(200);
    await gateway.stopPusher();
    expect(await gateway.restarts()).toBe(3);
    expect(await gateway.missing()).toEqual([]);
  });

  it('revokes tokens from a killed process', async () => {
    const alive = await until('the tokens of earlier runs are revoked', async () => {
      const { tokens } = await gateway.sandbox<{ tokens: { alive: number } }>('GET', 'status');
      return tokens.alive === 1 && tokens;
    });
    expect(alive.alive).toBe(1);
  });

  it('is restarted by the watchdog without loss if its process stalls', async () => {
    await gateway.dropIn('watchdog', '[Service]\nWatchdogSec=3\n');
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    await gateway.startPusher();
    await gateway.pushed(200);
    const pid = await gateway.mainPid();
    await gateway.machine.sh(`kill -STOP ${pid}`);
    await gateway.restarted(pid);
    await gateway.pushed(200);
    await gateway.stopPusher();
    const manager = await gateway.machine.sh('journalctl -o cat --no-pager');
    expect(manager).toContain('Watchdog timeout');
    expect(await gateway.missing()).toEqual([]);
    await gateway.removeDropIn('watchdog');
  });

  it('is not killed by the watchdog while busy', async () => {
    await gateway.dropIn('watchdog', '[Service]\nWatchdogSec=2\n');
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    const pid = await gateway.mainPid();
    const fed = async () => Number(await gateway.machine.property(UNIT, 'WatchdogTimestampMonotonic'));
    const first = await fed();
    await until('the watchdog was notified for three of its periods', async () => (await fed()) > first + 6_000_000);
    expect(await gateway.mainPid()).toBe(pid);
    await gateway.removeDropIn('watchdog');
  });
});

describe('systemctl reload', { timeout: PATIENCE_MS }, () => {
  const value = { tag: 'FT-101', key: 'pressure', value: 1.5 };
  let shipped: string;

  it('applies a new tag without restarting the process', async () => {
    const pid = await gateway.mainPid();
    shipped = gateway.machine.read(TAGS);
    expect((await gateway.push([value])).status).toBe(422);
    gateway.machine.write(TAGS, shipped.replace(/^ {6}flow: .*$/m, '$&\n      pressure: { unit: 15 }'));
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
    await until('the new value is accepted', async () => (await gateway.push([value])).status === 204);
    expect(await gateway.mainPid()).toBe(pid);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('active');
  });

  it('keeps the previous configuration if the new one has a problem, and logs its location to the journal', async () => {
    const pid = await gateway.mainPid();
    gateway.machine.write(TAGS, 'tags:\n  FT-101: { asset: none }\n');
    expect((await gateway.machine.run(['systemctl', 'reload', UNIT])).status).not.toBe(0);
    await until('the problem is in the journal', async () => /tags\.yaml:2/.test(await gateway.machine.journal(UNIT)));
    expect((await gateway.push([value])).status).toBe(204);
    expect(await gateway.mainPid()).toBe(pid);
    await until(
      'the service is active',
      async () => (await gateway.machine.property(UNIT, 'ActiveState')) === 'active',
    );
    gateway.machine.write(TAGS, shipped);
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
  });
});

describe('hardened run reaction', { timeout: PATIENCE_MS }, () => {
  const REACTION = `reactions:
  - name: note
    on: threshold_reached
    do:
      - run: [/opt/site/note]
`;

  const ran = async () =>
    (await gateway.machine.journal(UNIT)).split('\n').filter((line) => /reaction=note|"note"/.test(line));

  it('cannot write to a folder by default', async () => {
    gateway.machine.write(
      '/opt/site/note',
      '#!/bin/sh\nenv >/opt/site/out/environment && cat >/opt/site/out/event\n',
      0o755,
    );
    await gateway.machine.sh('mkdir /opt/site/out; chown tagferry /opt/site/out');
    gateway.machine.write('/etc/tagferry/reactions.yaml', REACTION);
    await gateway.configure('WEBHOOK_URL=http://127.0.0.1:8471/webhook\n');
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    const threshold = { instrumentation: 4711, type: 'high', value: 20, key: 'flow', unit: 'cubic_meter_per_hour' };
    await gateway.sandbox('POST', 'thresholds', threshold);
    await gateway.crossThreshold();
    await until('the reaction has failed', async () => (await ran()).some((line) => line.includes('Read-only')));
    expect(gateway.machine.exists('/opt/site/out/environment')).toBe(false);
  });

  it('can write to a folder listed in a drop-in, but cannot access secrets or the notify socket', async () => {
    await gateway.dropIn('reaction-writes-path', '[Service]\nReadWritePaths=/opt/site/out\n');
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    await until('the reaction has run', async () => {
      await gateway.crossThreshold();
      return (
        gateway.machine.exists('/opt/site/out/event') &&
        gateway.machine.read('/opt/site/out/event').includes('threshold_reached')
      );
    });
    const environment = gateway.machine.read('/opt/site/out/environment');
    expect(environment).not.toMatch(/NOTIFY_SOCKET|CREDENTIALS_DIRECTORY|CLIENT_SECRET|sandbox-secret|WATCHDOG/);
  });
});

describe('example drop-in', { timeout: PATIENCE_MS }, () => {
  const example = (name: string) => gateway.machine.read(`/usr/share/doc/tagferry/examples/${name}.conf`);

  it.for(['bounds', 'reaction-uses-device', 'reaction-needs-capability', 'serial-line'])(
    '%s does not prevent the service from starting',
    async (name) => {
      await gateway.dropIn('example', example(name));
      await gateway.machine.sh(`systemctl restart ${UNIT}`);
      expect(await gateway.machine.property(UNIT, 'SubState')).toBe('running');
      await gateway.removeDropIn('example');
    },
  );

  it('reaction-needs-capability grants a capability to a reaction', async () => {
    const file = '/opt/site/out/capabilities';
    gateway.machine.write(
      '/opt/site/note',
      `#!/bin/sh\ngrep CapEff /proc/self/status >${file}.new && mv ${file}.new ${file}\n`,
      0o755,
    );
    const capabilities = async () => {
      // Stopped first, because a reaction still running under the previous unit would create its own files.
      await gateway.machine.sh(`systemctl stop ${UNIT}; rm -f ${file}; systemctl start ${UNIT}`);
      await until('the reaction has run', async () => {
        await gateway.crossThreshold();
        return gateway.machine.exists(file);
      });
      return Number.parseInt(gateway.machine.read(file).split(/\s+/)[1]!, 16);
    };
    expect(await capabilities()).toBe(0);
    await gateway.dropIn('example', example('reaction-needs-capability'));
    expect(await capabilities()).toBe(1 << 13); // CAP_NET_RAW
    await gateway.removeDropIn('example');
  });

  it('encrypted-credentials provides secrets that only this machine can decrypt, if systemd supports encryption', async () => {
    const version = Number(/systemd (\d+)/.exec(await gateway.machine.sh('systemctl --version'))![1]);
    if (version >= 250) {
      const folder = '/etc/tagferry/credentials';
      await gateway.machine.sh(`for name in client_secret technical_password; do
        tr -d '\\n' <${folder}/$name | systemd-creds encrypt --with-key=host --name=$name - ${folder}/$name.cred
        mv ${folder}/$name /root/$name
      done`);
      await gateway.dropIn('credentials', example('encrypted-credentials'));
      await gateway.machine.sh(`systemctl restart ${UNIT}`);
      expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online/);
      await gateway.machine.sh(`mv /root/client_secret /root/technical_password ${folder}/; rm ${folder}/*.cred`);
      await gateway.removeDropIn('credentials');
    }
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online/);
  });
});

describe('systemctl stop', { timeout: PATIENCE_MS }, () => {
  it('stops the agent within TimeoutStopSec with exit status 0, and leaves no valid tokens on the platform', async () => {
    await gateway.startPusher();
    await gateway.pushed(100);
    await gateway.machine.sh(`systemctl stop ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'Result')).toBe('success');
    expect(await gateway.machine.property(UNIT, 'ExecMainStatus')).toBe('0');
    const { tokens } = await gateway.sandbox<{ tokens: { alive: number } }>('GET', 'status');
    expect(tokens.alive).toBe(0);
    await gateway.stopPusher();
  });

  it('is followed by a start with the latest valid files if the current files are rejected, or by exit status 78 if there are none', async () => {
    const good = gateway.machine.read('/etc/tagferry/agent.env');
    gateway.machine.write('/etc/tagferry/agent.env', `${good}POST_INTERVALL=1s\n`);
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online.*configuration rejected$/);
    expect(await gateway.machine.sh('tagferry status')).toMatch(/^files +rejected at .*\n.*POST_INTERVALL/m);
    const kept = '/var/lib/tagferry/last-good.json';
    await gateway.machine.sh(`systemctl stop ${UNIT}; mv ${kept} /root/`);
    expect((await gateway.machine.run(['systemctl', 'start', UNIT])).status).not.toBe(0);
    expect(await gateway.machine.property(UNIT, 'ExecMainStatus')).toBe('78');
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('failed');
    expect(await gateway.restarts()).toBe(0);
    expect(await gateway.machine.journal(UNIT)).toContain('POST_INTERVAL');
    gateway.machine.write('/etc/tagferry/agent.env', good);
    await gateway.machine.sh(`systemctl start ${UNIT}`);
  });
});

describe('installed package', { timeout: PATIENCE_MS }, () => {
  it('keeps its configuration and backlog during an upgrade, and delivers all values afterwards', async () => {
    await gateway.sandbox('POST', 'offline', { mode: 503 });
    await gateway.startPusher();
    await gateway.pushed(300);
    const pid = await gateway.mainPid();
    await gateway.install(newer, 'apt');
    await gateway.restarted(pid);
    await gateway.pushed(300);
    await gateway.stopPusher();
    expect((await gateway.missingNow()).length).toBeGreaterThan(0);
    expect(await gateway.machine.sh('tagferry --version')).toBe(VERSION);
    expect(await gateway.machine.sh('stat -c "%a %U:%G" /etc/tagferry/agent.env')).toBe('640 root:tagferry');
    expect(gateway.machine.read('/etc/tagferry/agent.env')).toContain('sandbox-client');
    await gateway.sandbox('POST', 'online');
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
    expect(await gateway.missing()).toEqual([]);
  });

  it('does not start a stopped service during an upgrade', async () => {
    await gateway.machine.sh(`systemctl stop ${UNIT}`);
    await gateway.install(newer);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('inactive');
    await gateway.machine.sh(`systemctl start ${UNIT}`);
  });

  it('stops the service, and keeps state and configuration, when removed', async () => {
    await gateway.machine.sh('apt-get remove --yes tagferry');
    expect(await gateway.machine.sh(`systemctl is-active ${UNIT} || true`)).not.toBe('active');
    expect(gateway.machine.exists('/usr/lib/tagferry')).toBe(false);
    expect(gateway.machine.exists('/var/lib/tagferry/buffer.db')).toBe(true);
    expect(gateway.machine.exists('/etc/tagferry/credentials/client_secret')).toBe(true);
  });

  it('uses its previous state after reinstallation', async () => {
    await gateway.install(newer);
    await until(
      'the service is running',
      async () => (await gateway.machine.property(UNIT, 'ActiveState')) === 'active',
    );
    expect(gateway.machine.read('/etc/tagferry/agent.env')).toContain('sandbox-client');
  });

  it('deletes state, configuration and secrets when purged', async () => {
    // Regardless of the buffer contents.
    await gateway.machine.sh('touch /etc/tagferry/purge-values && apt-get purge --yes tagferry');
    for (const gone of [
      '/var/lib/tagferry',
      '/etc/tagferry',
      '/etc/systemd/system/tagferry.service.d',
      '/run/tagferry',
    ]) {
      expect(gateway.machine.exists(gone), gone).toBe(false);
    }
    expect(await gateway.machine.sh('systemctl list-unit-files --no-legend "tagferry*" || true')).toBe('');
  });
});
