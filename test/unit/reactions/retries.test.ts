import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Action } from '../../../src/config/action-kinds.ts';
import type { Reaction } from '../../../src/config/reactions.ts';
import type { ActionResult } from '../../../src/reactions/action-kind.ts';
import { backoffAfter, isGivenUp } from '../../../src/reactions/engine/retries.ts';
import { ReactionRunner } from '../../../src/reactions/engine/runner.ts';
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
let attempted: string[];
let behave: (kind: string) => ActionResult;

function begin(maxAgeMs: number, ...actions: Action[]): void {
  const reaction: Reaction = { name: 'r', on: '*', conditions: [], cooldownMs: 0, maxAgeMs, actions };
  runner = new ReactionRunner({
    journal: at.journal,
    reactions: [reaction],
    perform: async ({ kind }) => {
      attempted.push(kind);
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
/** Advances the clock in steps, and waits for the reactions that each step starts. */
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
  attempted = [];
  behave = () => ({ outcome: 'failed', detail: 'ECONNREFUSED' });
});

afterEach(async () => {
  await runner?.stop(0);
  at.close();
  rmSync(folder, { recursive: true });
});

describe.each([post, publish])('failed $kind action', (action) => {
  it('succeeds after failing for eight minutes', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(10 * MINUTE, action);
    await pass(8 * MINUTE);
    expect(stateOf(1)).toBe('failed');
    expect(attempted.length).toBeGreaterThan(8);
    behave = () => ({ outcome: 'done' });
    await pass(2 * MINUTE);
    expect(stateOf(1)).toBe('done');
    expect(lines.filter((line) => line.event === 'reaction.dead')).toEqual([]);
  });

  it('becomes dead with the latest error when the event is older than max_age', async () => {
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
    const before = attempted.length;
    await pass(5 * MINUTE);
    expect(attempted).toHaveLength(before);
  });
});

describe('reaction with failed actions', () => {
  it('abandons a command after eight attempts, even across a restart, but keeps retrying a POST request', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    begin(60 * MINUTE, command, post);
    await pass(10 * MINUTE);
    expect(attempted.filter((kind) => kind === 'run')).toHaveLength(8);
    expect(stateOf(1)).toBe('failed');
    await runner.stop(0);
    behave = () => ({ outcome: 'done' });
    begin(60 * MINUTE, command, post);
    await pass(3 * MINUTE);
    expect(stateOf(1)).toBe('dead');
    expect(attempted.filter((kind) => kind === 'run')).toHaveLength(8);
  });

  it('releases later events for the object when the first event is dead', async () => {
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

describe('action attempts', () => {
  const trying = { tries: 8, maxTries: 8, waitedMs: 25 * 60 * MINUTE, replayed: false };
  const any = { maxAgeMs: 10 * MINUTE };
  it.each([
    ['end for a command at its maximum number', command, any, trying, true],
    ['continue for a command below its maximum number', command, any, { ...trying, tries: 7 }, false],
    ['continue for a post up to max_age', post, any, { ...trying, tries: 1_000 }, false],
    ['end for a post without max_age after a day', post, { maxAgeMs: 0 }, trying, true],
    [
      'continue for a post without max_age for 23 hours',
      post,
      { maxAgeMs: 0 },
      { ...trying, waitedMs: 23 * 60 * MINUTE },
      false,
    ],
    ['end for a replayed post at its maximum number', post, any, { ...trying, replayed: true }, true],
  ])('%s', (_, action, reaction, how, givenUp) => {
    expect(isGivenUp(action, reaction, how)).toBe(givenUp);
  });

  it('are at most one minute apart for ten minutes, and at most five minutes apart thereafter', () => {
    expect(backoffAfter(0).capMs).toBe(MINUTE);
    expect(backoffAfter(10 * MINUTE).capMs).toBe(MINUTE);
    expect(backoffAfter(30 * MINUTE).capMs).toBe(3 * MINUTE);
    expect(backoffAfter(24 * 60 * MINUTE).capMs).toBe(5 * MINUTE);
  });
});
