/** Output of status, doctor and check in each service state, with a real systemd. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { Gateway, packageOf } from './gateway.ts';
import { until } from './machine.ts';

const PATIENCE_MS = 300_000;
const UNIT = 'tagferry.service';
const SOCKET = '/run/tagferry/control.sock';
const AGENT_ENV = '/etc/tagferry/agent.env';
const TAGS = '/etc/tagferry/tags.yaml';

interface Check {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  next: string;
}

let gateway: Gateway;

beforeAll(async () => {
  const deb = await packageOf({ version: '0.0.1' });
  gateway = await Gateway.boot();
  await gateway.install(deb, 'apt');
  await gateway.startSandbox();
  await gateway.machine.sh('useradd anna --groups tagferry && useradd bert');
  await gateway.dropIn('fast', '[Service]\nRestartSec=500ms\n');
}, 1_200_000);

afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') {
    process.stderr.write(`${await gateway.machine.sh(`journalctl --no-pager -n 60 -u ${UNIT}`)}\n`);
  }
});

afterAll(async () => {
  await gateway?.stop();
});

const sh = (script: string) => gateway.machine.sh(script);
const tagferry = (...args: string[]) => gateway.machine.run(['tagferry', ...args]);
const tagferryAs = (user: string, verb: string) => gateway.machine.run(['su', user, '-c', `tagferry ${verb}`]);

async function doctor(): Promise<{ status: number; checks: Check[] }> {
  const { status, stdout } = await tagferry('doctor', '--json', '--inward');
  return { status, checks: (JSON.parse(stdout) as { checks: Check[] }).checks };
}

interface Expected {
  message: RegExp;
  next: string;
  never?: RegExp;
}

/** `status` and `doctor` report the same state, error and command, and both exit with 1. */
function expectState(expected: Expected): Promise<Check[]> {
  // The journal receives the final lines of a process after it has exited.
  return vi.waitFor(() => expectStateNow(expected), { timeout: 60_000 });
}

async function expectStateNow({ message, next, never = /(?!)/ }: Expected): Promise<Check[]> {
  const [status, { status: doctorStatus, checks }] = await Promise.all([tagferry('status'), doctor()]);
  expect(status.stderr).toContain(`no agent responds at ${SOCKET}`);
  expect(status.stderr).toMatch(message);
  expect(status.stderr).toContain(next);
  const service = checks.find(({ check, state }) => check === 'service' && state === 'failure');
  expect(service?.message).toMatch(message);
  expect(service?.next).toContain(next);
  expect(`${status.stderr} ${JSON.stringify(checks)}`).not.toMatch(never);
  expect([status.status, doctorStatus]).toEqual([1, 1]);
  return checks;
}

async function restarting(): Promise<void> {
  await until('systemd restarts the service', async () => (await gateway.restarts()) > 0);
}

const runsAgain = () => sh(`systemctl stop ${UNIT}; systemctl reset-failed ${UNIT} || true; systemctl start ${UNIT}`);

describe('status and doctor without configuration', { timeout: PATIENCE_MS }, () => {
  it.for(['before the first start', 'after a start that failed'])(
    'suggest only the command tagferry setup %s',
    async (when) => {
      if (when === 'after a start that failed') await sh(`systemctl start ${UNIT} || true`);
      const status = await tagferry('status');
      expect([status.status, status.stderr]).toEqual([
        1,
        `tagferry: no agent responds at ${SOCKET}: tagferry is not configured\nRun \`sudo tagferry setup\`.\n`,
      ]);
      const { status: doctorStatus, checks } = await doctor();
      expect(doctorStatus).toBe(1);
      expect(checks).toEqual([
        expect.objectContaining({ check: 'configuration', state: 'failure', next: 'Run `sudo tagferry setup`.' }),
      ]);
    },
  );
});

describe('status and doctor without an agent', { timeout: PATIENCE_MS }, () => {
  it('quote the rejected line if the service has failed', async () => {
    await gateway.configure('POST_INTERVALL=1s\n');
    await sh(`systemctl start ${UNIT} || true`);
    await expectState({ message: /failed, configuration rejected.*POST_INTERVALL/, next: '`sudo tagferry check`' });
  });

  it('suggest a command for a disabled service without quoting errors from an earlier start', async () => {
    await gateway.configure();
    await sh(`systemctl reset-failed ${UNIT}`);
    await expectState({
      message: /is stopped, and disabled at boot/,
      next: '`sudo systemctl enable --now tagferry`',
      never: /POST_INTERVALL/,
    });
  });

  it('suggest a command for a stopped service', async () => {
    await sh(`systemctl enable --quiet --now ${UNIT}; systemctl stop ${UNIT}`);
    await expectState({
      message: /is stopped/,
      next: '`sudo systemctl start tagferry`',
      never: /POST_INTERVALL|enable/,
    });
  });

  it('suggest a command for a masked service', async () => {
    await sh(`systemctl mask --quiet ${UNIT}`);
    await expectState({ message: /is masked/, next: '`sudo systemctl unmask tagferry', never: /systemctl start/ });
    await sh(`systemctl unmask --quiet ${UNIT}`);
  });

  it('suggest a command if systemd cannot load the unit', async () => {
    await gateway.dropIn('broken', '[Service]\nExecStart=\n');
    await expectState({ message: /cannot be loaded/, next: '`systemd-analyze verify tagferry.service`' });
    await sh('rm /etc/systemd/system/tagferry.service.d/broken.conf; systemctl daemon-reload');
  });

  it('suggest a command for a decommissioned gateway', async () => {
    const mark = '/var/lib/tagferry/decommissioned.json';
    gateway.machine.write(mark, '{"at":"2026-01-01T00:00:00.000Z"}\n');
    await sh(`chown tagferry: ${mark}; systemctl start ${UNIT} || true`);
    await expectState({ message: /decommissioned at 2026-01-01/, next: '`tagferry setup`', never: /systemctl start/ });
    await sh(`rm ${mark}; systemctl reset-failed ${UNIT}`);
  });

  it('suggest changing buffer ownership while the service restarts in a loop', async () => {
    await sh(`chown root /var/lib/tagferry/buffer.db; systemctl start --no-block ${UNIT}`);
    await restarting();
    const command = '`sudo chown -R tagferry: /var/lib/tagferry`';
    const message = /is restarted by systemd.*cannot open \/var\/lib\/tagferry\/buffer\.db/;
    const checks = await expectState({ message, next: command, never: /systemctl start/ });
    const failures = checks.filter(({ state }) => state === 'failure');
    expect(new Set(failures.map(({ next }) => next))).toEqual(new Set([`Run ${command}.`]));
    // This user cannot read the journal.
    const { status, stderr } = await tagferryAs('anna', 'status');
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/is restarted by systemd.*\nRun `sudo tagferry doctor`/),
    ]);
  });

  it('do not quote errors from an earlier run after a manual start', async () => {
    await sh(`systemctl stop ${UNIT}; chown -R tagferry: /var/lib/tagferry`);
    await sh(
      'systemd-run --quiet --unit=other /opt/platform/bin/node -e "net.createServer().listen(8470, \'127.0.0.1\')"',
    );
    await until('the address is in use', async () => {
      return (await gateway.machine.run(['bash', '-c', '</dev/tcp/127.0.0.1/8470'])).status === 0;
    });
    await sh(`systemctl start --no-block ${UNIT}`);
    await until(
      'the service starts',
      async () => (await gateway.machine.property(UNIT, 'ActiveState')) === 'activating',
    );
    const { status, stderr } = await tagferry('status');
    expect([status, stderr]).toEqual([1, expect.stringMatching(/is starting|cannot listen/)]);
    expect(stderr).not.toContain('buffer.db');
  });

  it('report the address in use by another program while the service restarts in a loop', async () => {
    await until('a start fails', async () => (await gateway.machine.journal(UNIT)).includes('INGEST_LISTEN: cannot'));
    await expectState({
      message: /is restarted by systemd.*INGEST_LISTEN: cannot listen on 127\.0\.0\.1:8470/,
      next: '`sudo ss -ltnp`',
      never: /systemctl start|buffer\.db|WEBHOOK_LISTEN cannot/,
    });
    await sh('systemctl stop other');
  });

  it('suggest a command for a service that has lost its socket', async () => {
    await runsAgain();
    // The agent would restore the socket if it were only missing.
    await sh(`rm ${SOCKET}; mkdir ${SOCKET}`);
    await expectState({ message: /is active/, next: '`sudo systemctl restart tagferry`', never: /cannot listen/ });
    await runsAgain();
  });

  it('report both the socket in the other folder and the service socket', async () => {
    gateway.machine.write('/root/other/agent.env', 'STATE_DIR=/root/other/state\nPLATFORM_URL=http://127.0.0.1:8480\n');
    const { status, stderr } = await tagferry('--config', '/root/other', 'status');
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/^tagferry: no agent responds at \/root\/other\/state\/control\.sock\n.*omit --config/),
    ]);
    expect(stderr).toContain(SOCKET);
  });
});

describe('rejected password in a systemd credential', { timeout: PATIENCE_MS }, () => {
  it('is reported by reload, and a corrected one takes effect only after a restart', async () => {
    const password = '/etc/tagferry/credentials/technical_password';
    await sh(`printf 'wrong\\n' >${password}; systemctl restart ${UNIT}`);
    const hint = /run `sudo systemctl restart tagferry`/;
    await until('the password is rejected', async () => hint.test((await tagferry('session', 'show')).stdout));
    await sh(`printf 'gateway-password\\n' >${password}`);
    const { status, stdout, stderr } = await tagferry('reload');
    const exception = 'Configuration reloaded, except for: systemd credential technical_password.\n';
    expect([status, stdout, stderr]).toEqual([0, exception, expect.stringMatching(hint)]);
    await sh(`systemctl restart ${UNIT}`);
    expect((await tagferry('reload')).stdout).toBe('Configuration reloaded.\n');
  });
});

describe('status run by a user outside the group', { timeout: PATIENCE_MS }, () => {
  it('reports the service socket if permission is denied', async () => {
    const { status, stderr } = await tagferryAs('bert', 'status');
    expect([status, stderr]).toEqual([1, expect.stringContaining(`cannot connect to ${SOCKET}: permission denied`)]);
  });
});

describe('check', { timeout: PATIENCE_MS }, () => {
  it.for([
    ['bert', [AGENT_ENV]],
    ['anna', ['credential client_secret', 'credential technical_password']],
  ] as const)('lists the files that %s cannot read, without counts or advice', async ([user, unread]) => {
    const { status, stdout } = await tagferryAs(user, 'check');
    expect(status).toBe(0);
    expect(stdout.split('\n').slice(0, -1)).toEqual([
      ...unread.map((name) => `${name}: not checked, this user cannot read it`),
      '/etc/tagferry: 0 problems',
      'Checked as the current user. To run the checks as the service user, run `sudo tagferry check`.',
    ]);
  });

  it('--online checks the files, not the configuration of the running agent', async () => {
    const before = gateway.machine.read(TAGS);
    gateway.machine.write(TAGS, before.replaceAll('881', '99881'));
    const { status, stdout } = await tagferry('check', '--online');
    gateway.machine.write(TAGS, before);
    expect([status, stdout]).toEqual([1, expect.stringMatching(/failure +assets +asset 99881/)]);
  });
});
