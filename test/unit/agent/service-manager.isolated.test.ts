import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ServiceManager } from '../../../src/agent/service-manager.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const UNIT = readFileSync(join(import.meta.dirname, '../../../systemd/tagferry.service'), 'utf8');
const path = process.env.PATH;
let folder: string;
let clock: ManualClock;

/** Creates a `systemd-notify` that records its arguments. */
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-service-'));
  writeFileSync(join(folder, 'systemd-notify'), `#!/bin/sh\necho "$@" >> ${folder}/told\n`);
  chmodSync(join(folder, 'systemd-notify'), 0o755);
  process.env.PATH = `${folder}${delimiter}${path}`;
  clock = new ManualClock();
});
afterEach(() => {
  process.env.PATH = path;
  rmSync(folder, { recursive: true });
});

const told = () => readFileSync(join(folder, 'told'), 'utf8').trimEnd().split('\n');
const manager = (environment: NodeJS.ProcessEnv = {}) =>
  new ServiceManager({ clock, log: silentLogger(), environment: { NOTIFY_SOCKET: '/run/notify', ...environment } });

describe('systemd notifier', () => {
  it('sends READY with a status, and then each changed status', async () => {
    const service = manager();
    await service.ready('online, backlog 0');
    await service.status('online, backlog 0');
    await service.status('offline, backlog 12');
    expect(told()).toEqual([
      `--pid=${process.pid} READY=1 STATUS=online, backlog 0`,
      `--pid=${process.pid} STATUS=offline, backlog 12`,
    ]);
  });

  it('sends RELOADING with the monotonic time, and then READY', async () => {
    const service = manager();
    await clock.advance(2_500);
    await service.reloading();
    await service.ready('online');
    expect(told()).toEqual([
      `--pid=${process.pid} RELOADING=1 MONOTONIC_USEC=3500000`,
      `--pid=${process.pid} READY=1 STATUS=online`,
    ]);
  });

  it('sends WATCHDOG three times per period while the loops make progress', async () => {
    let alive = true;
    const service = manager({ WATCHDOG_USEC: '60000000', WATCHDOG_PID: String(process.pid) });
    service.startWatchdog(() => alive);
    await vi.waitFor(() => expect(told()).toHaveLength(1));
    await clock.advance(20_000);
    await vi.waitFor(() => expect(told()).toHaveLength(2));
    alive = false;
    await clock.advance(60_000);
    await service.status('after that');
    expect(told()).toEqual([
      `--pid=${process.pid} WATCHDOG=1`,
      `--pid=${process.pid} WATCHDOG=1`,
      `--pid=${process.pid} STATUS=after that`,
    ]);
  });

  it('uses only the latest liveness check for WATCHDOG notifications', async () => {
    const service = manager({ WATCHDOG_USEC: '60000000' });
    service.startWatchdog(() => true);
    await vi.waitFor(() => expect(told()).toHaveLength(1));
    service.startWatchdog(() => false);
    await clock.advance(120_000);
    await service.status('after that');
    expect(told()).toEqual([`--pid=${process.pid} WATCHDOG=1`, `--pid=${process.pid} STATUS=after that`]);
  });

  it('sends nothing after STOPPING', async () => {
    const service = manager({ WATCHDOG_USEC: '60000000' });
    await service.stopping();
    service.startWatchdog(() => true);
    await clock.advance(60_000);
    await service.ready('too late');
    await service.status('too late');
    expect(told()).toEqual([`--pid=${process.pid} STOPPING=1 STATUS=stopping`]);
  });

  it('sends nothing without a service manager', async () => {
    const service = new ServiceManager({ clock, log: silentLogger(), environment: { WATCHDOG_USEC: '60000000' } });
    await service.ready('online');
    await service.reloading();
    service.startWatchdog(() => true);
    expect(told).toThrow('ENOENT');
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
});
