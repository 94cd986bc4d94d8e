import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Systemd } from '../../../src/agent/systemd.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

const ROOT = join(import.meta.dirname, '../../..');
const UNIT = readFileSync(join(ROOT, 'systemd/tagferry.service'), 'utf8');
const path = process.env.PATH;
let folder: string;
let clock: ManualClock;
let logged: Record<string, unknown>[];

/** Installs a `systemd-notify` that runs the shell commands. */
const install = (commands: string) =>
  writeFileSync(join(folder, 'systemd-notify'), `#!/bin/sh\n${commands}\n`, { mode: 0o755 });
const record = () => `echo "$@" >> ${folder}/told`;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-service-'));
  install(record());
  process.env.PATH = `${folder}${delimiter}${path}`;
  clock = new ManualClock();
  logged = [];
});
afterEach(() => {
  process.env.PATH = path;
  rmSync(folder, { recursive: true });
});

/** Returns the messages sent, with the arguments of the package in the form of variables. */
function told(): string[] {
  const file = join(folder, 'told');
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  return lines.map((line) =>
    line.replace('--ready', 'READY=1').replace('--status', 'STATUS').replace(`--pid=${process.pid} `, ''),
  );
}

function systemd(environment: NodeJS.ProcessEnv = {}): Systemd {
  const log = pino({ base: null, level: 'warn' }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  return new Systemd({ clock, log, environment: { NOTIFY_SOCKET: '/run/notify', ...environment } });
}

describe('systemd notifier', () => {
  it('sends READY with a status, and then each changed status', async () => {
    const service = systemd();
    await service.ready('online');
    await service.status('online');
    await service.status('platform unavailable');
    await service.status('platform unavailable');
    expect(told()).toEqual(['READY=1 STATUS=online', 'STATUS=platform unavailable']);
  });

  it('sends RELOADING with the monotonic time, and then READY', async () => {
    const service = systemd();
    await clock.advance(2_500);
    await service.reloading();
    await service.ready('online');
    expect(told()).toEqual(['RELOADING=1 MONOTONIC_USEC=3500000', 'READY=1 STATUS=online']);
  });

  it('sends messages in order even if the first program is slow, and only the latest status', async () => {
    install(`[ -e ${folder}/slow ] || { touch ${folder}/slow; sleep 0.3; }\n${record()}`);
    const service = systemd();
    const sent = [service.reloading(), service.status('resting'), service.status('offline'), service.ready('online')];
    await Promise.all([...sent, service.status('signed out')]);
    expect(told()).toEqual([expect.stringMatching('RELOADING=1'), 'READY=1 STATUS=online', 'STATUS=signed out']);
  });

  it('sends WATCHDOG three times per period while the loops make progress', async () => {
    let alive = true;
    const service = systemd({ WATCHDOG_USEC: '60000000', WATCHDOG_PID: String(process.pid) });
    service.startWatchdog(() => alive);
    await vi.waitFor(() => expect(told()).toHaveLength(1));
    await clock.advance(20_000);
    await vi.waitFor(() => expect(told()).toHaveLength(2));
    alive = false;
    await clock.advance(60_000);
    await service.status('after that');
    expect(told()).toEqual(['WATCHDOG=1', 'WATCHDOG=1', 'STATUS=after that']);
  });

  it('uses only the latest liveness check for WATCHDOG notifications', async () => {
    const service = systemd({ WATCHDOG_USEC: '60000000' });
    service.startWatchdog(() => true);
    await vi.waitFor(() => expect(told()).toHaveLength(1));
    service.startWatchdog(() => false);
    await clock.advance(120_000);
    await service.status('after that');
    expect(told()).toEqual(['WATCHDOG=1', 'STATUS=after that']);
  });

  it('sends WATCHDOG while a status hangs, and terminates the hung program', async () => {
    install(`case "$*" in *hangs*) touch ${folder}/hung; exec sleep 1000;; esac\n${record()}`);
    const service = systemd({ WATCHDOG_USEC: '60000000' });
    const hung = service.status('hangs');
    await vi.waitFor(() => expect(existsSync(join(folder, 'hung'))).toBe(true));
    service.startWatchdog(() => true);
    await vi.waitFor(() => expect(told()).toEqual(['WATCHDOG=1']));
    const ready = service.ready('online');
    await clock.advance(10_000);
    await Promise.all([hung, ready]);
    expect(told()).toEqual(['WATCHDOG=1', 'READY=1 STATUS=online']);
  });

  it('sends nothing after STOPPING', async () => {
    const service = systemd({ WATCHDOG_USEC: '60000000' });
    const queued = [service.reloading(), service.ready('online')];
    await Promise.all([...queued, service.stopping()]);
    service.startWatchdog(() => true);
    await clock.advance(60_000);
    await service.ready('too late');
    await service.status('too late');
    await service.reloading();
    expect(told()).toEqual(['STOPPING=1 STATUS=stopping']);
  });

  it('sends nothing without a service manager', async () => {
    const service = systemd({ NOTIFY_SOCKET: undefined, WATCHDOG_USEC: '60000000' });
    await service.ready('online');
    await service.status('offline');
    await service.reloading();
    service.startWatchdog(() => true);
    await service.stopping();
    expect(told()).toEqual([]);
  });

  it.for([
    ['a missing program', () => rmSync(join(folder, 'systemd-notify'))],
    ['a failing program', () => install('echo "no bus" >&2; exit 1')],
  ] as const)('logs %s once until a notification succeeds, and then repeats the status', async ([, damage]) => {
    damage();
    process.env.PATH = folder;
    const service = systemd();
    await service.ready('online');
    await service.reloading();
    await service.status('online');
    expect(logged).toEqual([expect.objectContaining({ event: 'service.notify_failed', level: 40 })]);
    process.env.PATH = `${folder}${delimiter}${path}`;
    install(record());
    await service.status('online');
    await service.status('online');
    expect(told()).toEqual(['STATUS=online']);
  });

  it('does not terminate the agent if no file descriptor is available', () => {
    const program = `
      import { openSync } from 'node:fs';
      import { Systemd } from ${JSON.stringify(join(ROOT, 'src/agent/systemd.ts'))};
      import { systemClock } from ${JSON.stringify(join(ROOT, 'src/base/clock.ts'))};
      const log = { warn: (fields) => console.log(fields.event), debug() {} };
      const service = new Systemd({ clock: systemClock, log, environment: { NOTIFY_SOCKET: '/run/notify' } });
      try { for (;;) openSync('/dev/null'); } catch {}
      await service.ready('online');
      await service.status('offline');
      await service.reloading();
      await new Promise((resolve) => setImmediate(resolve));
      console.log('alive');`;
    const command = ['-c', 'ulimit -n 128; exec "$@"', 'sh', process.execPath, '--input-type=module', '-e', program];
    const { stdout } = spawnSync('/bin/sh', command, { encoding: 'utf8' });
    expect(stdout).toBe('service.notify_failed\nalive\n');
  });
});

describe('systemd unit', () => {
  it('restarts the service after every exit status other than 78, initially after 3 s, later once per minute', () => {
    const restarting = UNIT.match(/^Restart\w*=.*$/gm);
    expect(restarting).toEqual([
      'Restart=always',
      'RestartSec=3',
      'RestartSteps=6',
      'RestartMaxDelaySec=60',
      'RestartPreventExitStatus=78',
    ]);
    expect(UNIT).toMatch(/^StartLimitIntervalSec=0$/m);
  });

  it('accepts messages from systemd-notify, which is a child process of the agent', () => {
    expect(UNIT).toMatch(/^NotifyAccess=all$/m);
  });
});
