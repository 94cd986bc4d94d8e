/** `tagferry logs` with the journal (a substitute for journalctl) and without journal access. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecentLines } from '../../../src/base/recent-lines.ts';
import { agentAddress } from '../../../src/commands/connection/control-client.ts';
import { readLog } from '../../../src/commands/logs/journal.ts';
import { type Choice, chooser, lineText, readEntry } from '../../../src/commands/logs/log-line.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from './verb-run.ts';

const ROOT = join(import.meta.dirname, '../../..');
const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: { unit: 12 } } }\n';
const PATH = process.env.PATH;

let sandbox: Sandbox;
let agent: AgentProcess;
const verb = (...args: string[]) => runVerb(['logs', ...args, '--config', agent.config]);
const place = () => agentAddress(agent.config, {});

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { LOG_LEVEL: 'debug' } });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await sandbox?.stop();
});
afterEach(() => {
  process.env.PATH = PATH;
});

const entry = (at: number, message: unknown, members: object = {}) =>
  JSON.stringify({
    __CURSOR: `s=${at}`,
    __REALTIME_TIMESTAMP: String(at * 1_000_000),
    PRIORITY: '6',
    SYSLOG_IDENTIFIER: 'tagferry',
    MESSAGE: typeof message === 'object' && !Array.isArray(message) ? JSON.stringify(message) : message,
    ...members,
  });
const own = (at: number, level: string, event: string, members: object = {}) =>
  entry(at, { level, time: new Date(at * 1000).toISOString(), event, ...members, msg: `about ${event}` });

/** Substitute for journalctl that records its arguments. `-r` prints entries newest first, `--follow` prints `later`. */
function withJournal(entries: readonly string[], later: readonly string[] = [], ending = ''): string {
  const folder = join(agent.folder, 'programs');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'calls'), '');
  for (const [name, rows] of Object.entries({ forward: entries, backward: entries.toReversed(), later })) {
    writeFileSync(join(folder, name), rows.map((row) => `${row}\n`).join(''));
  }
  const script = `#!/bin/sh
echo "$*" >> ${folder}/calls
${ending}
case " $* " in
  *" --follow "*) cat ${folder}/later; exec sleep 60 ;;
  *" -r "*) cat ${folder}/backward ;;
  *) cat ${folder}/forward ;;
esac
`;
  writeFileSync(join(folder, 'journalctl'), script);
  chmodSync(join(folder, 'journalctl'), 0o755);
  process.env.PATH = `${folder}${delimiter}${PATH}`;
  return join(folder, 'calls');
}

const ALL: Choice = { events: [], tags: [], assets: [] };

/** Returns the shown lines of the service, at least `enough`. */
async function shownOf(choice: Partial<Choice>, { limit, enough }: { limit?: number; enough?: number } = {}) {
  const stop = new AbortController();
  const shown: string[] = [];
  const messages: string[] = [];
  await readLog(place(), true, {
    isChosen: chooser({ ...ALL, ...choice }),
    sinceMs: choice.sinceMs,
    limit,
    follow: enough !== undefined,
    show(line) {
      shown.push(lineText(line, (text) => text));
      if (shown.length === enough) stop.abort();
    },
    say: (text) => messages.push(text),
    signal: stop.signal,
  });
  return { shown, messages };
}

describe('tagferry logs', () => {
  const ENTRIES = [
    entry(100, 'Started tagferry.service.', { SYSLOG_IDENTIFIER: 'systemd', _PID: '1' }),
    own(101, 'info', 'agent.ready'),
    own(102, 'warn', 'uplink.away', { code: '503' }),
    own(103, 'warn', 'modbus.unreadable', { value: 'FT-101 flow' }),
    own(104, 'error', 'uplink.series_waits', { asset: 881 }),
    own(105, 'warn', 'uplink.asset_pauses', { asset: 882 }),
    entry(106, [...Buffer.from('(node:7) a \u001b[2J warning')], { PRIORITY: '4' }),
  ];

  it('prints journal and systemd messages in order, without terminal control characters', async () => {
    withJournal(ENTRIES);
    const { shown } = await shownOf({}, { limit: 50 });
    expect(shown).toHaveLength(7);
    expect(shown[0]).toBe('1970-01-01 00:01:40 INFO   systemd  Started tagferry.service.');
    expect(shown[2]).toBe('1970-01-01 00:01:42 WARN   uplink.away  about uplink.away  code=503');
    expect(shown[6]).toBe('1970-01-01 00:01:46 WARN   (node:7) a \\u001b[2J warning');
  });

  it('filters by level, event, tag and asset, and limits the number of matching lines', async () => {
    withJournal(ENTRIES);
    const events = async (choice: Partial<Choice>, limit = 50) =>
      (await shownOf(choice, { limit })).shown.map((line) => /[a-z]+\.[a-z_]+/.exec(line.slice(26))?.[0]);
    expect(await events({ level: 'error' })).toEqual(['uplink.series_waits']);
    expect(await events({ events: ['uplink.*'] }, 2)).toEqual(['uplink.series_waits', 'uplink.asset_pauses']);
    expect(await events({ events: ['uplink.away', 'agent.*'] })).toEqual(['agent.ready', 'uplink.away']);
    expect(await events({ tags: ['FT-101'] })).toEqual(['modbus.unreadable']);
    expect(await events({ tags: ['FT-10'] })).toEqual([]);
    expect(await events({ tags: ['FT-101'], assets: [881] })).toEqual(['modbus.unreadable', 'uplink.series_waits']);
    expect(await events({ level: 'error', assets: [881, 882] })).toEqual(['uplink.series_waits']);
    expect(await events({}, 0)).toEqual([]);
  });

  it('finds lines about a tag by its asset or instrumentation, unless they refer to another tag', () => {
    const ofTags = [{ asset: 881, instrumentation: 4711 }];
    const isChosen = chooser({ ...ALL, tags: ['FT-101'], ofTags });
    const about = (members: object) => isChosen({ level: 'info', ...members });
    for (const members of [
      { tag: 'FT-101' },
      { asset: 881 },
      { assets: [1, 881], objects: 2 },
      { kind: 'asset', id: 881 },
      { instrumentation: 4711 },
      { instrumentations: [4711, 4712] },
    ]) {
      expect(about(members), JSON.stringify(members)).toBe(true);
    }
    for (const members of [
      { asset: 882 },
      { asset: 881, tag: 'FT-102' },
      { asset: 881, value: 'FT-102 level' },
      { asset: 881, instrumentation: 4712 },
      { assets: [1, 2] },
      {},
    ]) {
      expect(about(members), JSON.stringify(members)).toBe(false);
    }
    expect(chooser({ ...ALL, tags: ['FT-101'] })({ level: 'info', asset: 881 })).toBe(false);
  });

  it('follows the journal without lost or duplicate lines', async () => {
    const calls = withJournal(ENTRIES, [own(107, 'info', 'uplink.back'), own(108, 'debug', 'uplink.taken')]);
    const { shown } = await shownOf({ level: 'info', events: ['uplink.*'] }, { limit: 1, enough: 2 });
    expect(shown.map((line) => line.split(/ {2,}/)[1])).toEqual(['uplink.asset_pauses', 'uplink.back']);
    expect(readFileSync(calls, 'utf8')).toMatch(/--follow --after-cursor=s=106 --no-tail/);
  });

  it('reads the journal starting at a given time', async () => {
    const calls = withJournal(ENTRIES);
    const { shown } = await shownOf({ sinceMs: 103_500 });
    expect(shown).toHaveLength(3);
    expect(readFileSync(calls, 'utf8')).toContain('--since=@103');
  });

  it('decodes binary journal fields, and skips invalid entries', () => {
    expect(readEntry('no json')).toBeUndefined();
    expect(readEntry('{"MESSAGE":null,"PRIORITY":"3"}')?.line).toMatchObject({ level: 'error', msg: '' });
  });
});

describe('tagferry logs --tag', () => {
  it("uses tags.yaml to find log lines about a tag's asset", async () => {
    sandbox.faults.add({ method: 'POST', path: '/v1/assets/881/values', status: 403 });
    expect((await agent.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status).toBe(204);
    await agent.until(() => agent.logged('access.held').length === 1, 'its asset is held');
    const { status, stdout } = await verb('--no-follow', '--tag', 'FT-101', '--event', 'access.*', '--json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ event: 'access.held', asset: 881 });
    expect((await verb('--no-follow', '--tag', 'NO-1', '--event', 'access.*')).stdout).toBe('');
  });
});

describe('tagferry logs without journal access', () => {
  const HINT = 'Hint: You are currently not seeing messages from other users and the system.';

  it('prints lines stored by the agent, and names the group that grants access', async () => {
    withJournal([], [], `echo '${HINT}' >&2; exit 0`);
    const { shown, messages } = await shownOf({ events: ['agent.*'] }, { limit: 50 });
    expect(shown.join('\n')).toMatch(/INFO {3}agent\.ready {2}tagferry is ready/);
    expect(messages.join()).toMatch(/cannot read the journal.*systemd-journal \(or adm\) group/);
  });

  it('names both groups if the agent cannot be queried either', async () => {
    withJournal([], [], "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1");
    const nobody = { ...place(), socket: join(agent.folder, 'no.sock') };
    const reading = { isChosen: () => true, follow: false, show() {}, say() {}, signal: new AbortController().signal };
    await expect(readLog(nobody, true, reading)).rejects.toMatchObject({
      message: expect.stringContaining('cannot read the journal, and no agent responds'),
      hint: expect.stringContaining('systemd-journal'),
    });
  });
});

describe('tagferry logs without systemd', () => {
  it('prints the filtered lines stored by the agent as text or JSON, without secrets', async () => {
    const { status, stdout } = await verb('--no-follow', '--event', 'agent.*', '--json');
    expect(status).toBe(0);
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).event)).toEqual(['agent.starting', 'agent.ready']);
    expect((await verb('--no-follow', '--lines', '1', '--event', 'agent.*')).stdout).toMatch(
      /^\S+ \S+ INFO {3}agent\.ready.*\n$/,
    );
    expect((await verb('--no-follow', '--since', '1h', '--level', 'fatal')).stdout).toBe('');
    const { stdout: whole } = await verb('--no-follow', '--lines', '1000', '--json');
    expect(whole).not.toMatch(/sandbox-secret|gateway-password/);
  });

  it('follows the agent, and reports when it stops', async () => {
    const child = spawn(
      process.execPath,
      [MAIN, 'logs', '--event', 'agent.*', '--event', 'config.reloaded', '--config', agent.config],
      { cwd: ROOT, env: { ...process.env, NO_COLOR: '1' }, stdio: ['ignore', 'pipe', 'pipe'] },
    );
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    await agent.until(() => stdout.includes('agent.ready'), 'the existing lines are shown');
    agent.signal('SIGHUP');
    await agent.until(() => stdout.includes('config.reloaded'), 'new lines are shown');
    const ended = new Promise((resolve) => child.once('exit', resolve));
    await agent.end('SIGTERM');
    expect(await ended).toBe(1);
    expect(stdout).toContain('agent.stopping');
    expect(stderr).toContain('the agent has stopped');
    await agent.start();
  });

  it('rejects invalid options with exit status 2', async () => {
    for (const [args, words] of [
      [['--level', 'loud'], 'trace, debug, info, warn, error, fatal'],
      [['--since', 'yesterday'], '--since'],
      [['--lines', 'many'], '--lines'],
      [['--asset', 'FT-101'], '--asset'],
    ] as const) {
      const { status, stderr } = await verb(...args);
      expect(status, args.join(' ')).toBe(2);
      expect(stderr).toContain(words);
    }
  });
});

describe('log lines stored by the agent', () => {
  it('are limited to the most recent thousand, and missed lines are counted', () => {
    const recent = new RecentLines();
    for (let i = 0; i < 2_500; i++) recent.add(`{"n":${i}}\n`);
    const { lines, next } = recent.since(0);
    expect(lines).toHaveLength(1_000);
    expect([lines[0], lines.at(-1)]).toEqual(['{"n":1500}', '{"n":2499}']);
    for (let i = 0; i < 1_200; i++) recent.add(`{"n":${i}}`);
    expect(recent.since(next)).toMatchObject({ missed: 200, next: 3_700 });
  });

  it('are JSON with at most 1,500 characters', () => {
    const recent = new RecentLines();
    const long = '\u0001'.repeat(50_000);
    const head = { level: 'warn', time: '2026-11-22T00:00:00.000Z', event: 'config.refused' };
    recent.add(JSON.stringify({ ...head, problems: Array(500).fill('x'.repeat(300)), msg: 'm' }));
    recent.add(JSON.stringify({ ...head, error: long, code: long, tag: long, msg: long }));
    recent.add(JSON.stringify({ ...head, ...Object.fromEntries(Array.from({ length: 900 }, (_, i) => [`k${i}`, i])) }));
    recent.add('no json '.repeat(1_000));
    for (const line of recent.since(0).lines) {
      expect(line.length).toBeLessThanOrEqual(1_500);
      expect(JSON.parse(line)).toMatchObject({ cut: true });
    }
    expect(
      recent
        .since(0)
        .lines.slice(0, 3)
        .map((line) => JSON.parse(line).event),
    ).toEqual(Array(3).fill(head.event));
  });
});

describe('systemd unit', () => {
  it('sets the journal identifier to tagferry', () => {
    expect(readFileSync(join(ROOT, 'systemd/tagferry.service'), 'utf8')).toMatch(/^SyslogIdentifier=tagferry$/m);
  });
});
