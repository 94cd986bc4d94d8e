import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import type { Logger } from '../../../src/base/logger.ts';
import { endOrphans } from '../../../src/base/programs/family.ts';
import type { ActionContext, ActionParts } from '../../../src/reactions/action-kind.ts';
import { commandEnvironment } from '../../../src/reactions/actions/run.ts';
import { createPerformer } from '../../../src/reactions/actions.ts';
import { readFacts, tagNames } from '../../../src/reactions/event-facts.ts';
import { factsOf } from '../../unit/reactions/parts/facts.ts';

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

/** Whether the process runs; zombies do not count. */
function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

const runCommand = (
  action: { kind: 'run'; command: string[]; timeoutMs: number },
  context: ActionContext,
  parts: Partial<ActionParts>,
) => createPerformer(parts as ActionParts)(action, context);

/** Runs a shell script. */
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
      position: [0, 0] as const,
      reasonAgainstWrite: () => undefined,
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

describe('run action', () => {
  it('passes the event on standard input and its main fields as environment variables, without a shell', async () => {
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
      {
        reaction: 'r',
        event: facts,
        position: [0, 0] as const,
        reasonAgainstWrite: () => undefined,
        signal: new AbortController().signal,
      },
      { clock: systemClock, logger, instance: 'test' },
    );
    expect(literal.outcome).toBe('done');
    expect(existsSync(join(folder, '$(id);*'))).toBe(true);
  });

  it('passes no secret, notify socket or credential to the command', async () => {
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
    expect(written('fds')).not.toContain('secrets.db');
    const others = written('fds').replaceAll(/ [012] -> .*/g, '');
    expect(others).not.toContain('socket:');
  });

  it('accepts commands that ignore standard input', async () => {
    const large = factsOf('asset_updated', { asset: { id: 1 }, text: 'x'.repeat(1_000_000) });
    expect(await run('exec <&-; exit 0', { facts: large })).toMatchObject({ outcome: 'done' });
  });

  it('fails on a non-zero exit status or signal, or if the command cannot be started', async () => {
    expect(await run('exit 3')).toEqual({ outcome: 'failed', detail: 'exit 3' });
    expect(await run('kill -KILL $$')).toEqual({ outcome: 'failed', detail: 'terminated by SIGKILL' });
    const missing = await runCommand(
      { kind: 'run', command: ['/opt/no/such/program'], timeoutMs: 10_000 },
      {
        reaction: 'r',
        event: factsOf('threshold_reached'),
        position: [0, 0] as const,
        reasonAgainstWrite: () => undefined,
        signal: new AbortController().signal,
      },
      { clock: systemClock, logger, instance: 'test' },
    );
    expect(missing).toEqual({ outcome: 'failed', detail: 'program /opt/no/such/program not found' });
    expect(await run('exit 0', { workingFolder: '/no/such/folder' })).toMatchObject({
      outcome: 'failed',
      detail: expect.stringContaining('/no/such/folder'),
    });
  });

  it('logs the beginning of long output at debug level', async () => {
    const result = await run('i=0; while [ $i -lt 20000 ]; do echo "line $i of many"; i=$((i+1)); done; echo bad >&2');
    expect(result.outcome).toBe('done');
    const [ended] = lines.filter((one) => one.event === 'reaction.command');
    expect(ended).toMatchObject({ level: 30, exit: 0, reaction: 'close-valve', durationMs: expect.any(Number) });
    expect(JSON.stringify(ended)).not.toMatch(/bad|of many/);
    const [line] = lines.filter((one) => one.event === 'reaction.output');
    expect(line).toMatchObject({ level: 20, stderr: 'bad', reaction: 'close-valve' });
    expect(String(line?.stdout).length).toBeLessThan(2_100);
    expect(line?.stdout).toMatch(/^line 0 of many\n.*bytes more\)$/s);
  });

  it('logs the beginning of both output streams of a failed command', async () => {
    await run('echo "the valve does not answer"; i=0; while [ $i -lt 5000 ]; do echo more; i=$((i+1)); done; exit 4');
    const [ended] = lines.filter((one) => one.event === 'reaction.command');
    expect(ended).toMatchObject({ level: 30, exit: 4, stdout: expect.stringMatching(/^the valve does not answer\n/) });
    expect(String(ended?.stdout).length).toBeLessThan(2_100);
    expect(ended).not.toHaveProperty('stderr');
  });
});

describe('command that exceeds its timeout', () => {
  it('is terminated along with a grandchild that ignores SIGTERM', async () => {
    const result = await run(`sh -c 'trap "" TERM; echo $$ > "'$1'/pid"; while :; do sleep 1; done' &\nwait`, {
      timeoutMs: 1_500,
    });
    expect(result).toEqual({ outcome: 'failed', detail: 'timed out after 1500 ms', timedOut: true });
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });

  it('fails even if it exits with 0 after SIGTERM', async () => {
    const result = await run('trap "exit 0" TERM; echo $$ > "$1/pid"; while :; do sleep 0.05; done', {
      timeoutMs: 1_000,
    });
    expect(result.outcome).toBe('failed');
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });
});

describe('command that exits', () => {
  it('does not leave a child that keeps the output open', async () => {
    const result = await run('sleep 1000 & echo $! > "$1/pid"; exit 0');
    expect(result).toEqual({ outcome: 'done', detail: 'exit 0' });
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });

  it('does not leave a grandchild in its own session', async () => {
    const result = await run(
      `setsid sh -c 'trap "" TERM HUP; echo $$ > "'$1'/pid"; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &
       while [ ! -s "$1/pid" ]; do sleep 0.05; done; exit 0`,
    );
    expect(result.outcome).toBe('done');
    expect(isAlive(await pidIn('pid'))).toBe(false);
  });
});

describe('shutdown', () => {
  it('interrupts a running command', async () => {
    const stop = new AbortController();
    const running = run('echo $$ > "$1/pid"; sleep 1000', { signal: stop.signal });
    const pid = await pidIn('pid');
    stop.abort();
    expect(await running).toEqual({ outcome: 'interrupted' });
    expect(isAlive(pid)).toBe(false);
    expect(await run('exit 0', { signal: stop.signal })).toEqual({ outcome: 'interrupted' });
  });
});

describe('startup', () => {
  it('terminates only commands left by a killed agent with the same state folder', async () => {
    const stop = new AbortController();
    const running = run('echo $$ > "$1/pid"; sleep 1000', { signal: stop.signal });
    const pid = await pidIn('pid');
    expect(await endOrphans('another')).toBe(0);
    expect(isAlive(pid)).toBe(true);
    expect(await endOrphans('test')).toBeGreaterThan(0);
    expect(await running).toEqual({ outcome: 'failed', detail: 'terminated by SIGKILL' });
  });
});

describe('TAGFERRY_TAG', () => {
  const TAGS = [
    { name: 'FT-101', asset: 881, instrumentation: 4711 },
    { name: 'TT-101', asset: 881, instrumentation: 4712 },
    { name: 'GW-01', asset: 900 },
  ];

  it.each([
    ['the tag of the instrumentation', { asset: { id: 881 }, instrumentation: { id: 4712, href: '' } }, 'TT-101'],
    ['the only tag of the asset', { asset: { id: 900 } }, 'GW-01'],
    ['unset if two tags have the asset', { asset: { id: 881 } }, undefined],
    [
      'the tag in the event if tags.yaml does not contain the instrumentation',
      { instrumentation: { id: 5, tag: 'XT-5' } },
      'XT-5',
    ],
    ['unset for an unknown asset', { asset: { id: 1 } }, undefined],
  ])('is %s', (_, content, tag) => {
    const envelope = { event_type: 'threshold_reached', content };
    const stored = { id: 1, eventType: 'threshold_reached', occurredAtMs: 0, payload: '', envelope, progress: [] };
    const event = readFacts(stored, tagNames(TAGS));
    expect(commandEnvironment({}, { reaction: 'r', event }, 'm').TAGFERRY_TAG).toBe(tag);
  });
});
