import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { debianTree } from './debian-tree.ts';
import { Gateway, packageOf } from './gateway.ts';
import { until } from './machine.ts';
import { CHECKOUT } from './made-once.ts';

/** More than a slow machine needs; nothing here asserts a time. */
const PATIENCE_MS = 300_000;

const UNIT = 'tagferry.service';
const TAGS = '/etc/tagferry/tags.yaml';

let gateway: Gateway;
const { version: VERSION } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
let older: string;
let newer: string;

beforeAll(async () => {
  const packages = async () => [await packageOf({ version: '0.0.1' }), await packageOf()] as const;
  // One compiles, the other fetches.
  [[older, newer]] = await Promise.all([packages(), debianTree()]);
  gateway = await Gateway.boot();
}, 1_200_000);

afterAll(async () => {
  await gateway?.stop();
});

/** What the story looked like from inside, under a test that failed. */
afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  process.stderr.write(
    `${await gateway.machine.sh('journalctl --no-pager -n 60 2>&1; dpkg -l tagferry 2>&1 || true')}\n`,
  );
});

describe('a fresh package', { timeout: PATIENCE_MS }, () => {
  it('installs with apt, without a network, and says that it is not configured', async () => {
    const said = await gateway.install(older, 'apt');
    expect(said).toContain('tagferry setup');
    // A boot before `setup` has no failed unit.
    expect(await gateway.machine.property(UNIT, 'UnitFileState')).toBe('disabled');
  });

  it('does not start while it is not configured, is not tried again, and points to setup', async () => {
    expect((await gateway.machine.run(['systemctl', 'start', UNIT])).status).not.toBe(0);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('failed');
    expect(await gateway.machine.property(UNIT, 'ExecMainStatus')).toBe('78');
    expect(await gateway.restarts()).toBe(0);
    expect((await gateway.machine.run(['systemctl', 'status', UNIT])).stdout).toContain('tagferry setup');
  });

  it('lets the service read agent.env and nobody else, and the secrets nobody but root', async () => {
    const modes = await gateway.machine.sh('stat -c "%a %U:%G" /etc/tagferry/agent.env /etc/tagferry/credentials');
    expect(modes.split('\n')).toEqual(['640 root:tagferry', '711 root:root']);
  });

  it('keeps the agent running when the kernel kills a command for memory', async () => {
    expect(await gateway.machine.property(UNIT, 'OOMPolicy')).toBe('continue');
  });

  it('brings a manual page, completion of verbs, and a command that knows its version', async () => {
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

describe('a configured gateway', { timeout: PATIENCE_MS }, () => {
  it('is ready when systemctl start returns, under its own user, with both secrets from credentials', async () => {
    await gateway.startSandbox();
    await gateway.configure();
    // As `tagferry setup` does.
    await gateway.machine.sh(`systemctl enable --now ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'SubState')).toBe('running');
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online, .*backlog 0/);
    expect(await gateway.machine.sh(`stat -c %U /proc/${await gateway.mainPid()}`)).toBe('tagferry');
    expect(await gateway.machine.sh('stat -c "%a %U" /var/lib/tagferry')).toBe('700 tagferry');
  });

  it('has an exposure of 1.5 or lower by systemd-analyze security', async () => {
    const table = await gateway.machine.sh(`systemd-analyze security --no-pager ${UNIT}`);
    const exposure = /Overall exposure level for \S+: ([0-9.]+)/.exec(table)?.[1];
    expect(Number(exposure)).toBeLessThanOrEqual(1.5);
  });

  it('is started again by systemd after kill -9 in the middle of its work, and every acknowledged value arrives', async () => {
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

  it('leaves no token of a killed process alive beside its own', async () => {
    const alive = await until('tokens of former lives are revoked', async () => {
      const tokens = await gateway.sandbox<{ alive: number }>('GET', 'tokens');
      return tokens.alive === 1 && tokens;
    });
    expect(alive.alive).toBe(1);
  });

  it('is ended by the watchdog when its process stands still, and started again with nothing lost', async () => {
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

  it('is not ended by the watchdog while it works', async () => {
    await gateway.dropIn('watchdog', '[Service]\nWatchdogSec=2\n');
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    const pid = await gateway.mainPid();
    const fed = async () => Number(await gateway.machine.property(UNIT, 'WatchdogTimestampMonotonic'));
    const first = await fed();
    await until('the watchdog was fed for three of its periods', async () => (await fed()) > first + 6_000_000);
    expect(await gateway.mainPid()).toBe(pid);
    await gateway.removeDropIn('watchdog');
  });
});

describe('systemctl reload', { timeout: PATIENCE_MS }, () => {
  const value = { tag: 'FT-101', key: 'pressure', value: 1.5 };
  let shipped: string;

  it('puts a new tag into force without a new process', async () => {
    const pid = await gateway.mainPid();
    shipped = gateway.machine.read(TAGS);
    expect((await gateway.push([value])).status).toBe(422);
    gateway.machine.write(TAGS, shipped.replace(/^ {6}flow: .*$/m, '$&\n      pressure: { unit: 15 }'));
    await gateway.machine.sh(`systemctl reload ${UNIT}`);
    await until('the new value is taken', async () => (await gateway.push([value])).status === 204);
    expect(await gateway.mainPid()).toBe(pid);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('active');
  });

  it('keeps the old configuration when the new one has a problem, and names the place in the journal', async () => {
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

describe('a run reaction under the hardening', { timeout: PATIENCE_MS }, () => {
  const REACTION = `reactions:
  - name: note
    on: threshold_reached
    do:
      - run: [/opt/site/note]
`;

  const ran = async () =>
    (await gateway.machine.journal(UNIT)).split('\n').filter((line) => /reaction=note|"note"/.test(line));

  it('may not write to a folder that nobody opened for it', async () => {
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

  it('may after a drop-in, and sees neither secrets nor credentials nor the notify socket', async () => {
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

describe('a drop-in from the examples', { timeout: PATIENCE_MS }, () => {
  const example = (name: string) => gateway.machine.read(`/usr/share/doc/tagferry/examples/${name}.conf`);

  it.for(['bounds', 'reaction-uses-device', 'reaction-needs-capability', 'serial-line'])(
    '%s leaves a service that starts',
    async (name) => {
      await gateway.dropIn('example', example(name));
      await gateway.machine.sh(`systemctl restart ${UNIT}`);
      expect(await gateway.machine.property(UNIT, 'SubState')).toBe('running');
      await gateway.removeDropIn('example');
    },
  );

  it('reaction-needs-capability gives the capability to a reaction, which it does not have otherwise', async () => {
    const file = '/opt/site/out/capabilities';
    gateway.machine.write(
      '/opt/site/note',
      `#!/bin/sh\ngrep CapEff /proc/self/status >${file}.new && mv ${file}.new ${file}\n`,
      0o755,
    );
    const capabilities = async () => {
      // Stopped before: a reaction that still runs under the unit of before would leave its own.
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

  it('encrypted-credentials hands over secrets that only this machine can read, where systemd knows how', async () => {
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
  it('ends within TimeoutStopSec, cleanly, and leaves no token alive on the platform', async () => {
    await gateway.startPusher();
    await gateway.pushed(100);
    await gateway.machine.sh(`systemctl stop ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'Result')).toBe('success');
    expect(await gateway.machine.property(UNIT, 'ExecMainStatus')).toBe('0');
    expect((await gateway.sandbox<{ alive: number }>('GET', 'tokens')).alive).toBe(0);
    await gateway.stopPusher();
  });

  it('is followed by a start with the last good files where those of now are refused, and by 78 where none were kept', async () => {
    const good = gateway.machine.read('/etc/tagferry/agent.env');
    gateway.machine.write('/etc/tagferry/agent.env', `${good}POST_INTERVALL=1s\n`);
    await gateway.machine.sh(`systemctl restart ${UNIT}`);
    expect(await gateway.machine.property(UNIT, 'StatusText')).toMatch(/^online.*files refused$/);
    expect(await gateway.machine.sh('tagferry status')).toMatch(/^files +refused since .*\n.*POST_INTERVALL/m);
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

describe('the package', { timeout: PATIENCE_MS }, () => {
  it('is upgraded with a backlog on disk, keeps the configuration, and delivers everything afterwards', async () => {
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

  it('does not start a service that was stopped before the upgrade', async () => {
    await gateway.machine.sh(`systemctl stop ${UNIT}`);
    await gateway.install(newer);
    expect(await gateway.machine.property(UNIT, 'ActiveState')).toBe('inactive');
    await gateway.machine.sh(`systemctl start ${UNIT}`);
  });

  it('leaves state and configuration when it is removed, and stops the service', async () => {
    await gateway.machine.sh('apt-get remove --yes tagferry');
    expect(await gateway.machine.sh(`systemctl is-active ${UNIT} || true`)).not.toBe('active');
    expect(gateway.machine.exists('/usr/lib/tagferry')).toBe(false);
    expect(gateway.machine.exists('/var/lib/tagferry/buffer.db')).toBe(true);
    expect(gateway.machine.exists('/etc/tagferry/credentials/client_secret')).toBe(true);
  });

  it('takes up its state again when it is installed once more', async () => {
    await gateway.install(newer);
    await until('it runs', async () => (await gateway.machine.property(UNIT, 'ActiveState')) === 'active');
    expect(gateway.machine.read('/etc/tagferry/agent.env')).toContain('sandbox-client');
  });

  it('deletes state, configuration and secrets when it is purged', async () => {
    // Whatever stands in the buffer by now.
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
