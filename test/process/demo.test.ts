import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Count, countAtPlatform, problemsOf } from '../../src/commands/demo/count.ts';
import { DEMO_TAGS } from '../../src/commands/demo/plant.ts';
import { openStage, progressBar } from '../../src/commands/demo/stage.ts';
import { MIN_SECONDS, shouldReturn, timetableOf } from '../../src/commands/demo/timetable.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { MAIN } from '../built-agent.ts';
import { COMPILED_CODE } from '../compiled-code.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'demo-test-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** The demo as a process. Its temporary folder stands in the test's, so that what it leaves can be seen. */
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
  it('tells the main job from login to a clean stop, counts nothing missing, and exits 0', async () => {
    // What the caller exported must not reach the agent: this address would take its values elsewhere.
    const demo = startDemo(['--seconds', '45'], { PLATFORM_URL: 'http://127.0.0.1:1', TAGFERRY_CONFIG: '/nowhere' });
    const status = await demo.ended;
    const story = demo.output();
    expect(`${status}\n${story}`).toMatch(/^0\n/);
    const acts = [
      /the gateway's page {3}http:\/\/127\.0\.0\.1:\d+\/#token=\S{24}\n/,
      /the platform's page {2}http:\/\/127\.0\.0\.1:\d+\/sandbox\/\n/,
      /login as gateway@sandbox\.example/,
      /values flow, \d+ a second; \d+ readings of this machine/,
      /the platform goes away/,
      /the agent has noticed/,
      /platform away +in [\d,]+ +buffer [1-9]/,
      /[1-9][\d,]* values on disk after .* the platform returns/,
      /the agent has found it by itself/,
      /all [1-9][\d,]* values of the outage are delivered, none missing/,
      /its flow surges/,
      /threshold_reached to the webhook: answered 204/,
      /the reaction runs.*close-valve FT-101 got/,
      /threshold_reached of 4711: flow \d.* high limit 80/,
      /the valve closes/,
      /the permission on TT-101 \(asset 885\) is taken away/,
      /asset 885 is held/,
      /the permission is given back; [1-9]\d* values of TT-101 have waited/,
      /asset 885 is released, and they are delivered/,
      /sent [\d,]+, acknowledged [\d,]+, at the platform [\d,]+, missing 0\n/,
      /invented 0, different 0/,
      /stopped cleanly \(exit 0\) and revoked its token: tokens alive 0/,
    ];
    const places = acts.map((act) => story.search(act));
    expect(acts.filter((_, index) => places[index]! < 0)).toEqual([]);
    expect(places).toEqual([...places].sort((one, other) => one - other));
    expect(story).toMatch(/the token is renewed by its refresh token/);
    const [, sent, acknowledged, there] = /sent (\S+), acknowledged (\S+), at the platform (\S+), missing/.exec(story)!;
    expect([acknowledged, there]).toEqual([sent, sent]);
    // Elsewhere than on a terminal: no control characters, and nothing too wide for a page.
    expect(story).not.toContain('\x1b');
    expect(story).not.toContain('\r');
    expect(story.split('\n').filter((line) => [...line].length > 80)).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
    const pid = Number(/process (\d+)/.exec(story)![1]);
    expect(runs(pid)).toBe(false);
  });

  it('ends both processes at SIGINT, revokes the token and leaves nothing behind', async () => {
    const demo = startDemo(['--seconds', '60']);
    const pid = Number((await demo.until(/process (\d+)/))[1]);
    await demo.until(/the plant pushes/);
    expect(runs(pid)).toBe(true);
    demo.child.kill('SIGINT');
    expect(await demo.ended).toBe(0);
    expect(demo.output()).toMatch(/tokens alive 0\n\nEnded early/);
    expect(runs(pid)).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('exits 1, says what happened and keeps the log when the agent dies', async () => {
    const demo = startDemo(['--seconds', '60']);
    const pid = Number((await demo.until(/process (\d+)/))[1]);
    await demo.until(/the plant pushes/);
    process.kill(pid, 'SIGKILL');
    expect(await demo.ended).toBe(1);
    expect(demo.output()).toContain('the agent ended by itself, by SIGKILL');
    expect(demo.output()).not.toContain('SIGTERM');
    const log = /The agent's log: (.*)\n/.exec(demo.output())![1]!;
    expect(existsSync(log)).toBe(true);
  });

  it('refuses a time into which the story does not fit, as wrong usage', async () => {
    for (const seconds of ['5', 'soon', '1e9']) {
      const demo = startDemo(['--seconds', seconds]);
      expect(await demo.ended).toBe(2);
      expect(demo.output()).toContain(`${MIN_SECONDS}`);
    }
  });
});

describe('the count', () => {
  const right: Count = { sent: 60, acknowledged: 60, atPlatform: 60, missing: 0, invented: 0, different: 0 };

  it('comes out only where every value that was sent is at the platform, once and as it was', () => {
    expect(problemsOf(right)).toEqual([]);
  });

  it('does not come out with any of its numbers wrong', () => {
    const wrong: [Partial<Count>, RegExp][] = [
      [{ sent: 0, acknowledged: 0, atPlatform: 0 }, /no value was acknowledged/],
      [{ acknowledged: 40 }, /20 of 60 values not acknowledged/],
      [{ missing: 1, atPlatform: 59 }, /1 acknowledged value is missing/],
      [{ invented: 2, atPlatform: 62 }, /2 values at the platform never sent/],
      [{ different: 3 }, /3 values at the platform not as sent/],
    ];
    for (const [change, words] of wrong) expect(problemsOf({ ...right, ...change }).join()).toMatch(words);
  });
});

describe('the count at the platform', () => {
  it('finds by series and timestamp what is missing, invented and different', () => {
    const tag = DEMO_TAGS[0]!;
    const sent = [1000, 2000, 3000, 4000].map((timestampMs) => ({ timestampMs, value: 5, acknowledged: true }));
    // The last was sent, but its answer never came: the platform may have it or not.
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

describe('the timetable', () => {
  it('lets the parts fit into the least time, and the renewal fall after the outage', () => {
    for (const seconds of [MIN_SECONDS, 25, 60, 600]) {
      const { wholeMs, calmMs, awayMs, maxAwayMs, withoutPermissionMs, stopMs, tokenLifeS } = timetableOf(seconds, 100);
      expect(calmMs + maxAwayMs + withoutPermissionMs + stopMs).toBeLessThan(wholeMs * 0.7);
      expect(tokenLifeS * 1000 * 0.6).toBeGreaterThan(calmMs + awayMs);
      expect(tokenLifeS * 1000 * 0.75).toBeLessThan(wholeMs * 0.6);
    }
  });

  it('brings the platform back before the last try that surely falls into its time', () => {
    const plan = { awayMs: 10_000, maxAwayMs: 15_000 };
    const isTime = (goneForMs: number, failed: number, nextInMs: number) =>
      shouldReturn(plan, goneForMs, { failed, nextInMs });
    // Early, and the try after the next comes in time.
    expect(isTime(2_000, 2, 1_000)).toBe(false);
    // This try is late enough, but it is not near yet.
    expect(isTime(6_000, 2, 5_000)).toBe(false);
    expect(isTime(9_500, 2, 1_000)).toBe(true);
    // Early, but after another failure the next try could fall as late as 2 + 1 + 16 s.
    expect(isTime(2_000, 4, 1_000)).toBe(true);
    expect(isTime(10_000, 3, 5_000)).toBe(true);
  });
});

describe('the stage', () => {
  function stageOn(output: { isTTY?: boolean; columns?: number }, environment: NodeJS.ProcessEnv = {}) {
    let text = '';
    const write = (part: string) => (text += part);
    return { stage: openStage({ ...output, write }, environment, () => 12_340), text: () => text };
  }

  it('prints plain lines where there is no terminal', () => {
    const { stage, text } = stageOn({});
    stage.say('step', 'values flow');
    stage.live('in 1', 'in 1');
    stage.live('in 2');
    stage.close();
    expect(text()).toBe(' 12.3 s  ✓ values flow\n 12.3 s    in 1\n');
  });

  it('draws one live line under the story, cut to the terminal, and gives the cursor back', () => {
    const { stage, text } = stageOn({ isTTY: true, columns: 40 }, { NO_COLOR: '1' });
    stage.live('x'.repeat(200));
    stage.live('x'.repeat(200));
    stage.say('news', 'more');
    stage.close();
    stage.live('too late');
    const live = ` 12.3 s  ${'x'.repeat(30)}`;
    expect(text()).toBe(`\x1b[?25l\r${live}\x1b[K\r 12.3 s  · more\x1b[K\n${live}\x1b[K\r\x1b[K\x1b[?25h`);
  });

  it('colours a terminal, but not where NO_COLOR is set or the terminal is dumb', () => {
    const say = (environment: NodeJS.ProcessEnv) => {
      const { stage, text } = stageOn({ isTTY: true, columns: 80 }, environment);
      stage.say('trouble', 'gone');
      return text();
    };
    expect(say({})).toContain('\x1b[31m');
    expect(say({ NO_COLOR: '1' })).not.toContain('\x1b[31m');
    expect(say({ TERM: 'dumb' })).not.toContain('\x1b');
  });

  it('shows a share as a bar that is full only at the end', () => {
    expect(progressBar(0.5, 4)).toBe('██░░  50 %');
    expect(progressBar(0.999, 4)).toBe('███░  99 %');
    expect(progressBar(1, 4)).toBe('████ 100 %');
  });
});
