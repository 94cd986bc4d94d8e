import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Count, countAtPlatform, problemsOf } from '../../../src/commands/demo/count.ts';
import { DEMO_TAGS } from '../../../src/commands/demo/plant.ts';
import { openStage, progressBar } from '../../../src/commands/demo/stage.ts';
import { MIN_SECONDS, shouldReturn, timetableOf } from '../../../src/commands/demo/timetable.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'demo-test-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the demo as a process. Its temporary folder is inside the test folder, so that leftover files are visible. */
function startDemo(args: string[], environment: NodeJS.ProcessEnv = {}) {
  const clean = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('NODE_')));
  const child = spawn(process.execPath, [MAIN, 'demo', ...args], {
    cwd: folder,
    env: { ...clean, ...COMPILED_CODE, TMPDIR: folder, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const ended = new Promise<number | string>((resolve) =>
    child.once('exit', (code, signal) => resolve(code ?? signal ?? 0)),
  );
  const until = async (pattern: RegExp) => {
    const end = performance.now() + 45_000;
    while (!pattern.test(output)) {
      if (performance.now() > end || child.exitCode !== null) throw new Error(`never came: ${pattern}\n${output}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return pattern.exec(output)!;
  };
  return { child, ended, until, output: () => output };
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('tagferry demo', () => {
  it('runs from login to a clean shutdown, counts no missing values, and exits with 0', async () => {
    // The agent must not inherit exported variables, because this address would redirect its values.
    const demo = startDemo(['--seconds', '45'], { PLATFORM_URL: 'http://127.0.0.1:1', TAGFERRY_CONFIG: '/nowhere' });
    const status = await demo.ended;
    const story = demo.output();
    expect(`${status}\n${story}`).toMatch(/^0\n/);
    const acts = [
      /Gateway page {3}http:\/\/127\.0\.0\.1:\d+\/#token=\S{24}\n/,
      /Platform page {2}http:\/\/127\.0\.0\.1:\d+\/sandbox\/\n/,
      /signed in as gateway@sandbox\.example/,
      /\d+ values per second; \d+ readings of this machine/,
      /outage: the platform refuses/,
      /the agent detected the outage/,
      /offline rule drain-tank ran \d/,
      /unavailable +ingested [\d,]+ +buffer [1-9]/,
      /[1-9][\d,]* values on disk after .* attempts?\n/,
      /platform connection restored/,
      /all [1-9][\d,]* values buffered during the outage delivered, none missing/,
      /the FT-101 flow surges/,
      /webhook delivery threshold_reached: response 204/,
      /reaction close-valve ran/,
      /instrumentation 4711: flow \d.* high threshold 80/,
      /valve closed/,
      /the permission on TT-101 \(asset 885\) is revoked/,
      /asset 885 held/,
      /the permission is granted again, with [1-9]\d* buffered values? of TT-101/,
      /asset 885 released, its values delivered/,
      /sent [\d,]+, acknowledged [\d,]+, on the platform [\d,]+, missing 0\n/,
      /unexpected 0, different 0/,
      /agent stopped \(exit status 0\), token revoked/,
    ];
    const places = acts.map((act) => story.search(act));
    expect(acts.filter((_, index) => places[index]! < 0)).toEqual([]);
    expect(places).toEqual([...places].sort((one, other) => one - other));
    expect(story).toMatch(/token renewed/);
    const [, sent, acknowledged, there] = /sent (\S+), acknowledged (\S+), on the platform (\S+), missing/.exec(story)!;
    expect([acknowledged, there]).toEqual([sent, sent]);
    // Without a terminal, the output has no control characters and fits the page width.
    expect(story).not.toContain('\x1b');
    expect(story).not.toContain('\r');
    expect(story.split('\n').filter((line) => [...line].length > 80)).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
    const pid = Number(/process (\d+)/.exec(story)![1]);
    expect(runs(pid)).toBe(false);
  });

  it('terminates both processes on SIGINT, revokes the token and leaves no files', async () => {
    const demo = startDemo(['--seconds', '60']);
    const pid = Number((await demo.until(/process (\d+)/))[1]);
    await demo.until(/the plant pushes/);
    expect(runs(pid)).toBe(true);
    demo.child.kill('SIGINT');
    expect(await demo.ended).toBe(0);
    expect(demo.output()).toMatch(/token revoked\n\nDemo interrupted/);
    expect(runs(pid)).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('exits with 1, reports the cause and keeps the log if the agent exits prematurely', async () => {
    const demo = startDemo(['--seconds', '60']);
    const pid = Number((await demo.until(/process (\d+)/))[1]);
    await demo.until(/the plant pushes/);
    process.kill(pid, 'SIGKILL');
    expect(await demo.ended).toBe(1);
    expect(demo.output()).toContain('the agent exited unexpectedly by SIGKILL');
    expect(demo.output()).not.toContain('SIGTERM');
    const log = /Agent log: (.*)\n/.exec(demo.output())![1]!;
    expect(existsSync(log)).toBe(true);
  });

  it('rejects a duration shorter than the demo as a usage error', async () => {
    for (const seconds of ['5', 'soon', '1e9']) {
      const demo = startDemo(['--seconds', seconds]);
      expect(await demo.ended).toBe(2);
      expect(demo.output()).toContain(`${MIN_SECONDS}`);
    }
  });
});

describe('demo count', () => {
  const right: Count = { sent: 60, acknowledged: 60, atPlatform: 60, missing: 0, invented: 0, different: 0 };

  it('succeeds only if every sent value is stored on the platform once and unchanged', () => {
    expect(problemsOf(right)).toEqual([]);
  });

  it('fails if any of its numbers is wrong', () => {
    const wrong: [Partial<Count>, RegExp][] = [
      [{ sent: 0, acknowledged: 0, atPlatform: 0 }, /no value was acknowledged/],
      [{ acknowledged: 40 }, /20 of 60 values not acknowledged/],
      [{ missing: 1, atPlatform: 59 }, /1 acknowledged value is missing/],
      [{ invented: 2, atPlatform: 62 }, /2 values found on the platform, but never sent/],
      [{ different: 3 }, /3 values different on the platform/],
    ];
    for (const [change, words] of wrong) expect(problemsOf({ ...right, ...change }).join()).toMatch(words);
  });
});

describe('demo count on the platform', () => {
  it('detects missing, invented and modified values by series and timestamp', () => {
    const tag = DEMO_TAGS[0]!;
    const sent = [1000, 2000, 3000, 4000].map((timestampMs) => ({ timestampMs, value: 5, acknowledged: true }));
    // The final post has no response: the platform may have stored it or not.
    sent[3]!.acknowledged = false;
    const pushed = {
      tags: [tag],
      sent: 4,
      acknowledged: 3,
      valuesOf: (_tag: number, which: { acknowledged?: boolean } = {}) =>
        sent.filter(({ acknowledged }) => acknowledged || !which.acknowledged),
    };
    const sandbox = new Sandbox();
    const arrive = (timestampMs: number, value: number) =>
      sandbox.values.record(tag.asset, [
        {
          key: tag.key,
          group: undefined,
          unit: undefined,
          points: [{ timestampMs, value, status: undefined, stamped: false }],
        },
      ]);
    const counts = () => {
      const { atPlatform, missing, invented, different } = countAtPlatform(sandbox, pushed);
      return { atPlatform, missing, invented, different };
    };
    arrive(1000, 5);
    arrive(2000, 5);
    expect(counts()).toEqual({ atPlatform: 2, missing: 1, invented: 0, different: 0 });
    arrive(3000, 5);
    arrive(3000, 5);
    expect(counts()).toEqual({ atPlatform: 3, missing: 0, invented: 0, different: 0 });
    arrive(4000, 5);
    expect(counts()).toEqual({ atPlatform: 4, missing: 0, invented: 0, different: 0 });
    arrive(3000, 6);
    arrive(9000, 5);
    expect(counts()).toEqual({ atPlatform: 5, missing: 0, invented: 1, different: 1 });
  });
});

describe('demo schedule', () => {
  it('fits all steps into the minimum duration, with the token renewal after the outage', () => {
    for (const seconds of [MIN_SECONDS, 25, 60, 600]) {
      const { wholeMs, calmMs, awayMs, maxAwayMs, withoutPermissionMs, stopMs, tokenLifeS } = timetableOf(seconds, 100);
      expect(calmMs + maxAwayMs + withoutPermissionMs + stopMs).toBeLessThan(wholeMs * 0.7);
      expect(tokenLifeS * 1000 * 0.6).toBeGreaterThan(calmMs + awayMs);
      expect(tokenLifeS * 1000 * 0.75).toBeLessThan(wholeMs * 0.6);
    }
  });

  it('ends the outage before the last guaranteed delivery attempt', () => {
    const plan = { awayMs: 10_000, maxAwayMs: 15_000 };
    const isTime = (goneForMs: number, failed: number, nextInMs: number) =>
      shouldReturn(plan, goneForMs, { failed, nextInMs });
    // Too early, but the attempt after the next one is in time.
    expect(isTime(2_000, 2, 1_000)).toBe(false);
    // This attempt is late enough, but is not due yet.
    expect(isTime(6_000, 2, 5_000)).toBe(false);
    expect(isTime(9_500, 2, 1_000)).toBe(true);
    // Too early, but after another failure the next attempt could be as late as 2 + 1 + 16 s.
    expect(isTime(2_000, 4, 1_000)).toBe(true);
    expect(isTime(10_000, 3, 5_000)).toBe(true);
  });
});

describe('demo output', () => {
  function stageOn(output: { isTTY?: boolean; columns?: number }, environment: NodeJS.ProcessEnv = {}) {
    let text = '';
    const write = (part: string) => (text += part);
    return { stage: openStage({ ...output, write }, environment, () => 12_340), text: () => text };
  }

  it('consists of plain lines without a terminal', () => {
    const { stage, text } = stageOn({});
    stage.say('step', 'values flow');
    stage.live('in 1', 'in 1');
    stage.live('in 2');
    stage.close();
    expect(text()).toBe(' 12.3 s  ✓ values flow\n 12.3 s    in 1\n');
  });

  it('shows one live line below the other output, truncated to the terminal width, and restores the cursor', () => {
    const { stage, text } = stageOn({ isTTY: true, columns: 40 }, { NO_COLOR: '1' });
    stage.live('x'.repeat(200));
    stage.live('x'.repeat(200));
    stage.say('news', 'more');
    stage.close();
    stage.live('too late');
    const live = ` 12.3 s  ${'x'.repeat(30)}`;
    expect(text()).toBe(`\x1b[?25l\r${live}\x1b[K\r 12.3 s  · more\x1b[K\n${live}\x1b[K\r\x1b[K\x1b[?25h`);
  });

  it('is coloured on a terminal unless NO_COLOR is set or the terminal is dumb', () => {
    const say = (environment: NodeJS.ProcessEnv) => {
      const { stage, text } = stageOn({ isTTY: true, columns: 80 }, environment);
      stage.say('trouble', 'gone');
      return text();
    };
    expect(say({})).toContain('\x1b[31m');
    expect(say({ NO_COLOR: '1' })).not.toContain('\x1b[31m');
    expect(say({ TERM: 'dumb' })).not.toContain('\x1b');
  });

  it('shows a progress bar that is full only at the end', () => {
    expect(progressBar(0.5, 4)).toBe('██░░  50 %');
    expect(progressBar(0.999, 4)).toBe('███░  99 %');
    expect(progressBar(1, 4)).toBe('████ 100 %');
  });
});
