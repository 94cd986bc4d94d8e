import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Action, Reaction } from '../../src/config/reactions.ts';
import type { ActionResult } from '../../src/reactions/action.ts';
import { backoffAfter, isGivenUp } from '../../src/reactions/giving-up.ts';
import { ReactionRunner } from '../../src/reactions/runner.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openJournal, threshold } from './parts/inbox-journal.ts';

const NOW = Date.UTC(2026, 10, 21);
const MINUTE = 60_000;
const post: Action = { kind: 'post', url: 'http://127.0.0.1:1880/alarm', timeoutMs: 1_000 };
const publish: Action = { kind: 'publish', broker: 'broker', topic: 't', retain: false };
const command: Action = { kind: 'run', command: ['a'], timeoutMs: 1_000 };

let folder: string;
let clock: ManualClock;
let at: ReturnType<typeof openJournal>;
let runner: ReactionRunner;
let lines: Record<string, unknown>[];
let tried: string[];
let behave: (kind: string) => ActionResult;

function begin(maxAgeMs: number, ...actions: Action[]): void {
  const reaction: Reaction = { name: 'r', on: '*', conditions: [], cooldownMs: 0, maxAgeMs, actions };
  runner = new ReactionRunner({
    journal: at.journal,
    reactions: [reaction],
    perform: async ({ kind }) => {
      tried.push(kind);
      return behave(kind);
    },
    clock,
    logger: pino({ level: 'info' }, { write: (line: string) => lines.push(JSON.parse(line)) }),
    now: () => ({ ms: clock.wallMs(), clock: 'platform' }),
  });
  runner.start();
}

const until = (condition: () => boolean | Promise<boolean>, options: { timeout?: number; interval?: number } = {}) =>
  vi.waitUntil(condition, { timeout: 20_000, interval: 5, ...options });
const stateOf = (id: number) => at.inbox.show(id)?.state;
/** Time passes in small steps, each as long as what it started takes. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5_000) {
    await clock.advance(5_000);
    await until(() => runner.busy === 0, { interval: 1 });
  }
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-giving-up-'));
  clock = new ManualClock(NOW);
  at = openJournal(join(folder, 'inbox.db'), clock);
  lines = [];
  tried = [];
  behave = () => ({ outcome: 'failed', detail: 'ECONNREFUSED' });
});

afterEach(async () => {
  await runner?.stop(0);
  at.close();
  rmSync(folder, { recursive: true });
});

describe.each([post, publish])('a $kind that fails', (action) => {
  it('is tried again until its event is older than max_age, and is not lost to one of eight minutes at the other end', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(10 * MINUTE, action);
    await pass(8 * MINUTE);
    expect(stateOf(1)).toBe('failed');
    expect(tried.length).toBeGreaterThan(8);
    behave = () => ({ outcome: 'done' });
    await pass(2 * MINUTE);
    expect(stateOf(1)).toBe('done');
    expect(lines.filter((line) => line.event === 'reaction.dead')).toEqual([]);
  });

  it('is given up then: the event is dead, and says how it failed last', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(10 * MINUTE, action);
    await pass(12 * MINUTE);
    expect(stateOf(1)).toBe('dead');
    const dead = lines.filter((line) => line.event === 'reaction.dead');
    expect(dead).toMatchObject([
      { error: expect.stringMatching(/^ECONNREFUSED; .*max_age by the (platform|monotonic) clock$/) },
    ]);
    expect(lines.filter((line) => line.event === 'reaction.expired')).toEqual([]);
    expect(at.inbox.show(1)!.journal.at(-1)).toMatchObject({ reaction: 'r', outcome: 'dead' });
    const before = tried.length;
    await pass(5 * MINUTE);
    expect(tried).toHaveLength(before);
  });
});

describe('beside a post that waits for its receiver', () => {
  it('a command is given up after its eight tries, which a restart does not begin anew', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(60 * MINUTE, command, post);
    await pass(10 * MINUTE);
    expect(tried.filter((kind) => kind === 'run')).toHaveLength(8);
    expect(stateOf(1)).toBe('failed');
    await runner.stop(0);
    behave = () => ({ outcome: 'done' });
    begin(60 * MINUTE, command, post);
    await pass(3 * MINUTE);
    expect(stateOf(1)).toBe('dead');
    expect(tried.filter((kind) => kind === 'run')).toHaveLength(8);
  });

  it('a later event of the object has its turn once the first is given up', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(5 * MINUTE, post);
    await pass(4 * MINUTE);
    at.inbox.insertMany([threshold(2, NOW + 4 * MINUTE)]);
    runner.wake();
    await pass(3 * MINUTE);
    expect(stateOf(1)).toBe('dead');
    behave = () => ({ outcome: 'done' });
    await pass(2 * MINUTE);
    expect(stateOf(2)).toBe('done');
  });
});

describe('an action is given up', () => {
  const trying = { tries: 8, maxTries: 8, waitedMs: 25 * 60 * MINUTE, replayed: false };
  const any = { maxAgeMs: 10 * MINUTE };
  it.each([
    ['a command after its tries', command, any, trying, true],
    ['not a command before', command, any, { ...trying, tries: 7 }, false],
    ['a post by nothing but the age', post, any, { ...trying, tries: 1_000 }, false],
    ['a post without max_age after a day', post, { maxAgeMs: 0 }, trying, true],
    ['but not before', post, { maxAgeMs: 0 }, { ...trying, waitedMs: 23 * 60 * MINUTE }, false],
    ['a post that a person replays after its tries, whatever its age', post, any, { ...trying, replayed: true }, true],
  ])('%s', (_, action, reaction, how, givenUp) => {
    expect(isGivenUp(action, reaction, how)).toBe(givenUp);
  });

  it('after waits of a minute at most in the first ten minutes, and of five minutes at most ever', () => {
    expect(backoffAfter(0).capMs).toBe(MINUTE);
    expect(backoffAfter(10 * MINUTE).capMs).toBe(MINUTE);
    expect(backoffAfter(30 * MINUTE).capMs).toBe(3 * MINUTE);
    expect(backoffAfter(24 * 60 * MINUTE).capMs).toBe(5 * MINUTE);
  });
});
