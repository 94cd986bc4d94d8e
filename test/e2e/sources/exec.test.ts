// Requires: python3
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { wholeLines } from '../../whole-lines.ts';
import { AgentProcess } from '../harness/agent-process.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

const START_MS = 1_700_000_000_000;
const FLOOD = 20_000;
const ENV = { COMMIT_INTERVAL: '200ms', POST_INTERVAL: '100ms', POST_MAX_VALUES: '10000' };

/** Prints increasing numbers, and after a start the earlier ones again. Prints a number before it is in the ledger. */
const COUNTER = `
import json, os, sys, time
os.environ.get("CLIENT_SECRET") and sys.exit("secret in the environment")
ledger = open(sys.argv[1], "a+"); ledger.seek(0)
n = len(ledger.read().split())
with open(sys.argv[1] + ".pid", "w") as file: file.write("%d\\n" % os.getpid())
def say(k): print(json.dumps({"tag": "T", "key": "n", "value": k, "timestamp": ${START_MS} + k}), flush=True)
for k in range(n): say(k)
while True:
    say(n)
    ledger.write("%d\\n" % n); ledger.flush()
    n += 1
    time.sleep(0.005)
`;

/** Prints many lines at once and then nothing. */
const FLOODING = `
import sys, time
print('T bad=x\\nT state="run"\\nT state="broken"', flush=True)
for n in range(${FLOOD}): sys.stdout.write("T half=%d,whole=%d %d\\n" % (n, n, (${START_MS} + n) * 1000000))
sys.stdout.flush()
sys.stderr.write("flooded\\n" * 1000); sys.stderr.flush()
time.sleep(1000)
`;

/** Prints a number every 20 ms without flushing its output. */
const BUFFERED = `
import time
for n in range(1000): print("T python=%d" % n); time.sleep(0.02)
`;

/** Prints many numbers at once, without timestamps. */
const TOGETHER = `
import os, time
os.write(1, b"".join(b"T together=%d\\n" % n for n in range(100)))
time.sleep(1000)
`;

/** Prints one number per run; the fourth run fails after it. */
const ONCE = `
import sys
with open(sys.argv[1], "a+") as file:
    file.seek(0); n = len(file.readlines()); file.write("%d\\n" % n)
print('{"tag":"T","key":"once","value":%d}' % n)
sys.exit("the boiler is off" if n == 3 else 0)
`;

/** Ignores SIGTERM, and has a child in another session that does so too. */
const HUNG = `
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
with open(sys.argv[1], "a") as file: file.write("%d\\n" % os.getpid())
time.sleep(1000)
`;

/** Prints 12345, but is terminated after 123: at the timeout of a run, or because its output exceeds 16 MB. */
const CUT = `
import sys, time
def say(text): sys.stdout.write(text); sys.stdout.flush()
if sys.argv[1] == "size":
    lines, rest = divmod(16_000_000 - len("T size=123"), 50_000)
    for _ in range(lines): say("#" * 49_999 + "\\n")
    say("#" * (rest - 1) + "\\nT size=123")
    time.sleep(0.1)
    say("45\\n")
else: say("T time=123")
time.sleep(1000)
`;

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/guide/sources.md'), 'utf8');

let platform: Platform;
let agent: AgentProcess;

const file = (name: string) => join(agent.folder, name);
const stored = (key: string) => platform.stored(881, key);
const numbers = (key: string) => stored(key).map(({ value }) => value);

/** Writes a Python program to the folder, and returns the member of a source that runs it. */
function program(name: string, text: string, ...args: string[]): string {
  writeFileSync(file(name), `#!/usr/bin/python3\n${text}`);
  chmodSync(file(name), 0o755);
  return `exec: ${JSON.stringify([file(name), ...args])}`;
}

const tagsOf = (sources: string, values: string) =>
  `sources: { ${sources} }\ntags: { T: { asset: 881, values: { ${values} } } }\n`;
const configure = (tags: string) => agent.write(platform.url, { tags, env: ENV });
const reload = (sources: string, values: string) => reloadTags(tagsOf(sources, values));

async function reloadTags(tags: string): Promise<void> {
  const before = agent.logged('config.reloaded').length;
  configure(tags);
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length > before, 'the reload is accepted');
}

function isAlive(pid: number): boolean {
  try {
    // A zombie only waits for its parent.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

beforeAll(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url);
  configure(tagsOf(`counter: { ${program('counter.py', COUNTER, file('ledger'))} }`, 'n: { from: counter }'));
  await agent.start();
});
afterAll(async () => {
  // Also terminates the programs.
  await agent?.end('SIGTERM');
  await agent?.dispose();
  await platform?.stop();
});

describe('program source', () => {
  it('delivers each number of an endless stream when the program or the agent is killed', async () => {
    const ledger = file('ledger');
    const pid = () => Number(wholeLines(`${ledger}.pid`)[0]);
    const more = async (what: string) => {
      const before = wholeLines(ledger).length;
      await agent.until(() => wholeLines(ledger).length > before + 50, what);
    };
    for (const killed of ['program', 'agent', 'agent'] as const) {
      await more('the program prints numbers');
      if (killed === 'program') {
        const before = agent.logged('exec.ended').length;
        process.kill(pid(), 'SIGKILL');
        await agent.until(() => agent.logged('exec.ended').length > before, 'the end is reported');
      } else {
        await agent.end('SIGKILL');
        await agent.start();
      }
    }
    await more('the program prints numbers again');
    const last = pid();
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(isAlive(last)).toBe(false);
    const printed = wholeLines(ledger).map((line) => ({ timestampMs: START_MS + Number(line), value: Number(line) }));
    // Without the program, which would print its numbers again.
    configure(tagsOf('', 'n: {}'));
    await agent.start();
    await agent.until(() => platform.compare(881, 'n', printed).missing.length === 0, 'every printed number arrives');
    expect(stored('n').filter(({ timestampMs, value }) => timestampMs !== START_MS + value)).toEqual([]);
  });

  it('delivers every line of a program that outpaces the disk, scales values, and reports invalid lines', async () => {
    await reload(
      `flood: { ${program('flood.py', FLOODING)}, format: lines }`,
      'half: { from: flood, scale: 0.5, offset: 1 }, whole: {}, state: { from: flood, map: { run: 1 }, on_failure: bad }',
    );
    await agent.until(() => numbers('half').length + numbers('whole').length >= 2 * FLOOD, 'all values arrive');
    expect(numbers('half')).toEqual(Array.from({ length: FLOOD }, (_, n) => n / 2 + 1));
    expect(numbers('whole')).toEqual(Array.from({ length: FLOOD }, (_, n) => n));
    const isReported = (event: string) => agent.logged(event).some(({ source }) => source === 'flood');
    await agent.until(() => isReported('exec.refused'), 'the invalid line is reported');
    // A text that is not in the map is a failure of its value.
    await agent.until(() => numbers('state').length === 2, 'the failure is delivered');
    expect(stored('state').map(({ value, status }) => [value, status])).toEqual([
      [1, undefined],
      [1, 'bad'],
    ]);
    expect(isReported('source.not_a_number')).toBe(true);
    const said = () => agent.logged('exec.said').filter(({ line }) => line === 'flooded');
    await agent.until(() => said().length >= 20, 'its errors are logged');
    expect(said()).toHaveLength(20);
  });

  it('replaces implausible timestamps of a program, and reads timestamps without a UTC offset in its zone', async () => {
    const text =
      'import datetime, json, time\nnow = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)\n';
    const say = (key: string, time: string) =>
      `print(json.dumps({"tag": "T", "key": "${key}", "value": now.timestamp(), "timestamp": ${time}}), flush=True)\n`;
    const tokyo = 'now.astimezone(datetime.timezone(datetime.timedelta(hours=9))).strftime("%Y-%m-%dT%H:%M:%S")';
    const clocks = program(
      'clocks.py',
      `${text}${say('unset', 'int(now.timestamp())')}${say('zoned', tokyo)}time.sleep(99)`,
    );
    const local = program('local.py', `${text}${say('local', tokyo)}time.sleep(99)`);
    await reload(
      `clocks: { ${clocks}, zone: Asia/Tokyo }, local: { ${local} }, ` +
        `lines: { exec: [sh, -c, 'echo "T lines=1 $(date +%s)"; sleep 1000'], format: lines }`,
      'unset: { from: clocks }, zoned: {}, local: {}, lines: { from: lines }',
    );
    const keys = ['unset', 'zoned', 'lines'];
    await agent.until(() => keys.every((key) => stored(key).length > 0), 'the values arrive');
    const [unset, zoned] = [stored('unset')[0]!, stored('zoned')[0]!];
    expect(zoned.timestampMs).toBe(zoned.value * 1_000);
    expect(unset.timestampMs).toBeGreaterThanOrEqual(unset.value * 1_000);
    const errorsOf = (event: string) => agent.logged(event).map(({ source, error }) => `${source}: ${error}`);
    expect(errorsOf('source.time_replaced').sort()).toEqual([
      expect.stringMatching(/^clocks: .* appears to be in s, use milliseconds/),
      expect.stringMatching(/^lines: .*: print timestamps in nanoseconds$/),
    ]);
    await agent.until(() => errorsOf('source.zone_missing').length > 0, 'the missing zone is reported');
    expect(errorsOf('source.zone_missing')).toEqual([
      expect.stringMatching(/^local: .* 9 h ahead of the arrival time/),
    ]);
  });

  it('runs at an interval, stores each run once, reports failed runs, and kills hung ones with their children', async () => {
    const pids = file('pids');
    await reload(
      `once: { ${program('once.py', ONCE, file('runs'))}, every: 200ms }, ` +
        `hung: { ${program('hung.py', HUNG, pids)}, every: 200ms, timeout: 500ms }`,
      'once: { from: once, on_failure: bad }, never: { from: hung }',
    );
    await agent.until(() => numbers('once').includes(5), 'six runs are delivered');
    const failures = (source: string) => agent.logged('exec.failed').filter((one) => one.source === source);
    await agent.until(() => failures('hung').length > 0, 'the hung run is reported');
    expect(wholeLines(pids).slice(0, 2).map(Number).filter(isAlive)).toEqual([]);
    expect(failures('once')).toMatchObject([{ error: 'exited with status 1' }]);
    expect(failures('hung')[0]).toMatchObject({ error: 'still running after 500 ms' });
    expect(agent.logged('exec.failed_over')).toMatchObject([{ source: 'once' }]);
    const good = stored('once').filter(({ status }) => status !== 'bad');
    expect(good.map(({ value }) => value).slice(0, 6)).toEqual([0, 1, 2, 3, 4, 5]);
    // The failed run repeats its value with the status bad.
    expect(stored('once').filter(({ status }) => status === 'bad')).toMatchObject([{ value: 3 }]);
  });

  it('prevents buffered output of Python and C programs, and reports values without timestamps that arrive together', async () => {
    writeFileSync(file('numbers'), Array.from({ length: 500 }, (_, n) => `T sed=${n}\n`).join(''));
    await reload(
      `python: { ${program('buffered.py', BUFFERED)}, format: lines }, ` +
        `sed: { exec: [sh, -c, "while read line; do echo \\"$line\\"; sleep 0.02; done <${file('numbers')} | sed s/a/a/"], format: lines }, ` +
        `together: { ${program('together.py', TOGETHER)}, format: lines }`,
      'python: { from: python }, sed: { from: sed }, together: { from: together }',
    );
    for (const key of ['python', 'sed']) {
      await agent.until(() => numbers(key).length > 5, `the first numbers of ${key} arrive`);
      expect(numbers(key).length).toBeLessThan(400);
    }
    await agent.until(() => agent.logged('exec.buffered').length > 0, 'the values without timestamps are reported');
    expect(agent.logged('exec.buffered')).toMatchObject([{ source: 'together', values: 100 }]);
  });

  it('delivers the values of a child whose parent has exited, and terminates the child at the end', async () => {
    writeFileSync(file('reader.sh'), 'echo $$ >>$1\nwhile sleep 0.05; do echo "T child=1"; done\n');
    const wrapper = `sh ${file('reader.sh')} ${file('readers')} &`;
    await reload(
      `wrapper: { exec: [sh, "-c", ${JSON.stringify(wrapper)}], format: lines }, ` +
        'timed: { exec: [sh, "-c", "(sleep 0.3; echo T timed=7) &"], format: lines, every: 1s }',
      'child: { from: wrapper }, timed: { from: timed }',
    );
    await agent.until(() => numbers('timed').includes(7), 'the child of a program with an interval prints a value');
    await agent.until(() => numbers('child').length >= 20, 'the child prints values');
    const readers = wholeLines(file('readers')).map(Number);
    expect(readers).toHaveLength(1);
    expect(agent.logged('exec.ended').filter(({ source }) => source === 'wrapper')).toEqual([]);
    await reload('quiet: { exec: [sleep, "1000"] }', 'quiet: { from: quiet }');
    await agent.until(() => !isAlive(readers[0]!), 'the child is terminated');
  });

  it('rejects a line that is cut by a limit, and reports programs that are silent or cannot be started', async () => {
    await reload(
      `size: { ${program('cut.py', CUT, 'size')}, format: lines, every: 1h }, ` +
        `time: { ${program('cut.py', CUT, 'time')}, format: lines, every: 1h, timeout: 500ms }, ` +
        `quiet: { exec: [sleep, "1000"], timeout: 200ms }, missing: { exec: [${file('nothing')}], every: 1h }`,
      'size: { from: size }, time: { from: time }, quiet: { from: quiet }, missing: { from: missing }',
    );
    const sources = ['size', 'time', 'quiet', 'missing'];
    const ends = () => [...agent.logged('exec.failed'), ...agent.logged('exec.ended')];
    const errorOf = (name: string) => ends().find(({ source }) => source === name)?.error;
    await agent.until(() => sources.every((name) => errorOf(name) !== undefined), 'all programs are reported');
    expect(sources.map(errorOf)).toEqual([
      'printed more than 16 MB',
      'still running after 500 ms',
      'no output for 200 ms',
      expect.stringMatching(/nothing does not exist, .*: install it, or correct the path$/),
    ]);
    const reports = (await agent.status()).sources as { name: string; rejected: unknown }[];
    for (const name of ['size', 'time']) {
      const problem = `the output ends within the line "T ${name}=123"`;
      expect(reports.find((one) => one.name === name)?.rejected).toMatchObject({ count: 1, problem });
      expect(agent.logged('exec.refused')).toContainEqual(expect.objectContaining({ source: name, error: problem }));
      expect(numbers(name)).toEqual([]);
    }
  });

  it('runs immediately for a test of the source, which reports a failed run and rejected lines', async () => {
    writeFileSync(file('level'), 'print(\'{"tag":"T","key":"level","value":5}\')');
    writeFileSync(file('wrong'), 'while sleep 0.1; do echo \'{"tag":"T","key":"levl","value":1}\'; done');
    await reload(
      `level: { exec: [python3, ${file('level')}], every: 1h }, wrong: { exec: [sh, ${file('wrong')}] }`,
      'level: { from: level, scale: 2 }, other: { from: wrong }',
    );
    await agent.until(() => numbers('level').length === 1, 'the first run is delivered');
    const test = async (wait: string, name = 'level') =>
      JSON.parse((await runVerb(agent, 'sources', 'test', name, '--json', '--wait', wait)).stdout);
    const problem = expect.stringMatching(/^no message within 1 s\. .*rejected, latest: key: .*"levl"/);
    expect(await test('1s', 'wrong')).toMatchObject([{ raw: null, problem }]);
    writeFileSync(file('level'), 'print(\'{"tag":"T","key":"level","value":6}\', end="")');
    expect(await test('20s')).toMatchObject([{ raw: 6, value: 12, problem: null }]);
    writeFileSync(file('level'), 'raise SystemExit(3)');
    expect(await test('3s')).toMatchObject([{ raw: null, problem: 'exited with status 3' }]);
  });

  it('runs the Python and shell examples from docs/guide/sources.md', async () => {
    const balance = createServer((socket) =>
      socket.on('data', (request) => socket.write(String(request) === 'W?\n' ? '12500\n' : 'ERR\n')),
    );
    await new Promise<void>((resolve) => balance.listen(0, '127.0.0.1', resolve));
    const { port } = balance.address() as AddressInfo;
    const blockOf = (language: string) =>
      new RegExp(`^## Programs$[^]*?^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'ms').exec(PAGE)![1]!;
    writeFileSync(file('read-balance.py'), blockOf('python'));
    writeFileSync(file('read-load.sh'), blockOf('sh'));
    const tags = blockOf('yaml').replaceAll('/opt/site', agent.folder).replace('10.0.0.9:4001', `127.0.0.1:${port}`);
    await reloadTags(tags.replace('asset: 900', 'asset: 881'));
    await agent.until(() => ['weight', 'load', 'tasks'].every((key) => numbers(key).length > 0), 'all values arrive');
    expect(numbers('weight')[0]).toBe(12.5);
    balance.close();
  });
});
