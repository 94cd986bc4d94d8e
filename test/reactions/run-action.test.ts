import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import type { Logger } from '../../src/base/logger.ts';
import { endOrphans } from '../../src/base/programs/family.ts';
import { runCommand } from '../../src/reactions/run-action.ts';
import { factsOf } from './parts/facts.ts';

let folder: string;
let lines: Record<string, unknown>[];
let logger: Logger;
const left: number[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-run-'));
  lines = [];
  logger = pino({ level: 'debug' }, { write: (line: string) => lines.push(JSON.parse(line)) });
});

afterEach(() => {
  for (const pid of left.splice(0)) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** Alive and not merely waiting to be reaped. */
function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** Runs a shell script: the shell is the command here, as a technician may choose. */
function run(
  script: string,
  more: {
    timeoutMs?: number;
    signal?: AbortSignal;
    environment?: NodeJS.ProcessEnv;
    workingFolder?: string;
    facts?: ReturnType<typeof factsOf>;
  } = {},
) {
  const file = join(folder, 'script.sh');
  writeFileSync(file, script);
  return runCommand(
    {
      kind: 'run',
      command: ['/bin/sh', file, folder],
      timeoutMs: more.timeoutMs ?? 30_000,
      ...(more.workingFolder ? { workingFolder: more.workingFolder } : {}),
    },
    {
      reaction: 'close-valve',
      event: more.facts ?? factsOf('threshold_reached'),
      signal: more.signal ?? new AbortController().signal,
    },
    { clock: systemClock, logger, instance: 'test', environment: more.environment ?? process.env },
  );
}

const written = (name: string) => readFileSync(join(folder, name), 'utf8').trim();

async function pidIn(name: string): Promise<number> {
  await vi.waitUntil(() => existsSync(join(folder, name)) && written(name) !== '');
  left.push(Number(written(name)));
  return Number(written(name));
}

describe('a command', () => {
  it('gets the event as received on standard input, its main fields in the environment, and no shell', async () => {
    const facts = factsOf('threshold_reached');
    const folderOfIts = mkdtempSync(join(folder, 'at-'));
    const result = await run(
      'cat > "$1/stdin"; pwd > "$1/pwd"; echo "$TAGFERRY_EVENT_TYPE $TAGFERRY_ASSET_ID $TAGFERRY_INSTRUMENTATION_ID $TAGFERRY_VALUE $TAGFERRY_THRESHOLD_TYPE $TAGFERRY_REACTION" > "$1/fields"',
      { facts, workingFolder: folderOfIts },
    );
    expect(result).toEqual({ outcome: 'done', detail: 'exit 0' });
    expect(written('stdin')).toBe(facts.payload);
    expect(written('pwd')).toBe(folderOfIts);
    expect(written('fields')).toBe('threshold_reached 881 4711 25.4 high close-valve');
    const literal = await runCommand(
      { kind: 'run', command: ['/usr/bin/touch', join(folder, '$(id);*')], timeoutMs: 10_000 },
      { reaction: 'r', event: facts, signal: new AbortController().signal },
      { clock: systemClock, logger, instance: 'test' },
    );
    expect(literal.outcome).toBe('done');
    expect(existsSync(join(folder, '$(id);*'))).toBe(true);
  });

  it('inherits neither secrets nor the notify socket nor credentials', async () => {
    const environment = {
      ...process.env,
      PATH: process.env.PATH,
      LC_TIME: 'C',
      CLIENT_SECRET: 'leak',
      CLIENT_ID: 'leak',
      TECHNICAL_PASSWORD: 'leak',
      TECHNICAL_PASSWORD_FILE: 'leak',
      WEBHOOK_SECRET: 'leak',
      INGEST_TOKEN: 'leak',
      HTTPS_PROXY: 'leak',
      PLATFORM_URL: 'leak',
      NOTIFY_SOCKET: 'leak',
      WATCHDOG_USEC: 'leak',
      WATCHDOG_PID: 'leak',
      CREDENTIALS_DIRECTORY: 'leak',
      LISTEN_FDS: 'leak',
      LISTEN_PID: 'leak',
      STATE_DIRECTORY: 'leak',
      NODE_OPTIONS: 'leak',
    };
    const open = openSync(join(folder, 'secrets.db'), 'w');
    const listening = createServer().listen(0, '127.0.0.1');
    await once(listening, 'listening');
    await run('env > "$1/env"; ls -l /proc/self/fd > "$1/fds"', { environment });
    closeSync(open);
    listening.close();
    expect(written('env')).not.toContain('leak');
    expect(written('env')).toContain('LC_TIME=C');
    const allowed = /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|TZ|LC_\w+|TAGFERRY_\w+|PWD|OLDPWD|SHLVL|_)=/;
    expect(
      written('env')
        .split('\n')
        .filter((line) => !allowed.test(line)),
    ).toEqual([]);
    // No file and no socket that the daemon has open.
    expect(written('fds')).not.toContain('secrets.db');
    const others = written('fds').replaceAll(/ [012] -> .*/g, '');
    expect(others).not.toContain('socket:');
  });

  it('may ignore its standard input', async () => {
    const large = factsOf('asset_updated', { asset: { id: 1 }, text: 'x'.repeat(1_000_000) });
    expect(await run('exec <&-; exit 0', { facts: large })).toMatchObject({ outcome: 'done' });
  });

  it('fails by its exit status, by a signal, and where it cannot be started', async () => {
    expect(await run('exit 3')).toEqual({ outcome: 'failed', detail: 'exit 3' });
    expect(await run('kill -KILL $$')).toEqual({ outcome: 'failed', detail: 'ended by SIGKILL' });
    const missing = await runCommand(
      { kind: 'run', command: ['/opt/no/such/program'], timeoutMs: 10_000 },
      { reaction: 'r', event: factsOf('threshold_reached'), signal: new AbortController().signal },
      { clock: systemClock, logger, instance: 'test' },
    );
    expect(missing).toEqual({ outcome: 'failed', detail: 'there is no /opt/no/such/program' });
    expect(await run('exit 0', { workingFolder: '/no/such/folder' })).toMatchObject({
      outcome: 'failed',
      detail: expect.stringContaining('/no/such/folder'),
    });
  });

  it('is logged with the beginning of what it wrote, however much that is', async () => {
    const result = await run('i=0; while [ $i -lt 20000 ]; do echo "line $i of many"; i=$((i+1)); done; echo bad >&2');
    expect(result.outcome).toBe('done');
    const [ended] = lines.filter((one) => one.event === 'reaction.command');
    expect(ended).toMatchObject({ level: 30, exit: 0, reaction: 'close-valve', durationMs: expect.any(Number) });
    // What it wrote may repeat the event: for whoever asks for it.
    expect(JSON.stringify(ended)).not.toMatch(/bad|of many/);
    const [line] = lines.filter((one) => one.event === 'reaction.output');
    expect(line).toMatchObject({ level: 20, stderr: 'bad', reaction: 'close-valve' });
    expect(String(line?.stdout).length).toBeLessThan(2_100);
    expect(line?.stdout).toMatch(/^line 0 of many\n.*bytes more\)$/s);
  });

  it('that fails is logged with the beginning of both of its outputs: many complain on the standard one', async () => {
    await run('echo "the valve does not answer"; i=0; while [ $i -lt 5000 ]; do echo more; i=$((i+1)); done; exit 4');
    const [ended] = lines.filter((one) => one.event === 'reaction.command');
    expect(ended).toMatchObject({ level: 30, exit: 4, stdout: expect.stringMatching(/^the valve does not answer\n/) });
    expect(String(ended?.stdout).length).toBeLessThan(2_100);
    expect(ended).not.toHaveProperty('stderr');
  });
});

describe('when its time is up', () => {
  it('a command is ended with a grandchild that ignores SIGTERM', async () => {
    const result = await run(`sh -c 'trap "" TERM; echo $$ > "'$1'/pid"; while :; do sleep 1; done' &\nwait`, {
      timeoutMs: 1_500,
    });
    expect(result).toEqual({ outcome: 'failed', detail: 'ended after its timeout of 1500 ms', timedOut: true });
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });

  it('a command that tidies up on SIGTERM and ends with 0 has failed all the same', async () => {
    const result = await run('trap "exit 0" TERM; echo $$ > "$1/pid"; while :; do sleep 0.05; done', {
      timeoutMs: 1_000,
    });
    expect(result.outcome).toBe('failed');
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });
});

describe('when a command has ended', () => {
  it('a child that it left behind is ended, and does not keep the reaction waiting by holding its output', async () => {
    const result = await run('sleep 1000 & echo $! > "$1/pid"; exit 0');
    expect(result).toEqual({ outcome: 'done', detail: 'exit 0' });
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });

  it('a grandchild that made itself a daemon in a session of its own is ended as well', async () => {
    const result = await run(
      `setsid sh -c 'trap "" TERM HUP; echo $$ > "'$1'/pid"; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &
       while [ ! -s "$1/pid" ]; do sleep 0.05; done; exit 0`,
    );
    expect(result.outcome).toBe('done');
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });
});

describe('a stop', () => {
  it('ends a command that runs, which is interrupted and not failed', async () => {
    const stop = new AbortController();
    const running = run('echo $$ > "$1/pid"; sleep 1000', { signal: stop.signal });
    const pid = await pidIn('pid');
    stop.abort();
    expect(await running).toEqual({ outcome: 'interrupted' });
    expect(isAlive(pid)).toBe(false);
    expect(await run('exit 0', { signal: stop.signal })).toEqual({ outcome: 'interrupted' });
  });
});

describe('a start', () => {
  it('ends what a killed daemon of the same state folder left, and nobody else', async () => {
    const stop = new AbortController();
    const running = run('echo $$ > "$1/pid"; sleep 1000', { signal: stop.signal });
    const pid = await pidIn('pid');
    expect(await endOrphans('another')).toBe(0);
    expect(isAlive(pid)).toBe(true);
    expect(await endOrphans('test')).toBeGreaterThan(0);
    expect(await running).toEqual({ outcome: 'failed', detail: 'ended by SIGKILL' });
  });
});
