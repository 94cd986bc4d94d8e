import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../src/base/logger.ts';
import { ServiceManager } from '../../src/daemon/service-manager.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const UNIT = readFileSync(join(import.meta.dirname, '../../systemd/tagferry.service'), 'utf8');
const path = process.env.PATH;
let folder: string;
let clock: ManualClock;

/** A `systemd-notify` that writes down what it is asked to send. */
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

describe('what systemd is told', () => {
  it('is READY with a status, then each status that differs', async () => {
    const service = manager();
    await service.ready('online, backlog 0');
    await service.status('online, backlog 0');
    await service.status('offline, backlog 12');
    expect(told()).toEqual([
      `--pid=${process.pid} READY=1 STATUS=online, backlog 0`,
      `--pid=${process.pid} STATUS=offline, backlog 12`,
    ]);
  });

  it('is RELOADING with the time by the monotonic clock, which Type=notify-reload asks for, then READY again', async () => {
    const service = manager();
    await clock.advance(2_500);
    await service.reloading();
    await service.ready('online');
    expect(told()).toEqual([
      `--pid=${process.pid} RELOADING=1 MONOTONIC_USEC=3500000`,
      `--pid=${process.pid} READY=1 STATUS=online`,
    ]);
  });

  it('is WATCHDOG three times in a period as long as the loops make progress, and not after', async () => {
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

  it('is WATCHDOG by the latest word on what lives alone: that of a start is over when the agent is ready', async () => {
    const service = manager({ WATCHDOG_USEC: '60000000' });
    service.startWatchdog(() => true);
    await vi.waitFor(() => expect(told()).toHaveLength(1));
    service.startWatchdog(() => false);
    await clock.advance(120_000);
    await service.status('after that');
    expect(told()).toEqual([`--pid=${process.pid} WATCHDOG=1`, `--pid=${process.pid} STATUS=after that`]);
  });

  it('is nothing after STOPPING', async () => {
    const service = manager({ WATCHDOG_USEC: '60000000' });
    await service.stopping();
    service.startWatchdog(() => true);
    await clock.advance(60_000);
    await service.ready('too late');
    await service.status('too late');
    expect(told()).toEqual([`--pid=${process.pid} STOPPING=1 STATUS=stopping`]);
  });

  it('is nothing at all where no service manager listens', async () => {
    const service = new ServiceManager({ clock, log: silentLogger(), environment: { WATCHDOG_USEC: '60000000' } });
    await service.ready('online');
    await service.reloading();
    service.startWatchdog(() => true);
    expect(told).toThrow('ENOENT');
  });
});

describe('the unit', () => {
  it('restarts always but on 78, after 3 s at first, later once a minute', () => {
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
