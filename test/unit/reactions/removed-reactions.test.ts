import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Action } from '../../../src/config/action-kinds.ts';
import type { Reaction } from '../../../src/config/reactions.ts';
import { ReactionRunner } from '../../../src/reactions/engine/runner.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openJournal, threshold } from './parts/inbox-journal.ts';

const NOW = Date.UTC(2026, 10, 21);

let folder: string;
let clock: ManualClock;
let at: ReturnType<typeof openJournal>;
let runner: ReactionRunner;
let lines: Record<string, unknown>[];
let outcomes: string[];
let failing: Set<string>;

function reaction(name: string, commands: string[], more: Partial<Reaction> = {}): Reaction {
  const actions = commands.map((command): Action => ({ kind: 'run', command: [command], timeoutMs: 1_000 }));
  return { name, on: '*', conditions: [], cooldownMs: 0, maxAgeMs: 3_600_000, actions, ...more };
}

function start(reactions: Reaction[]): void {
  runner = new ReactionRunner({
    journal: at.journal,
    reactions,
    perform: async (action) => {
      const isFailing = action.kind === 'run' && failing.has((action.command as string[])[0]!);
      return isFailing ? { outcome: 'failed', detail: 'exit 1' } : { outcome: 'done' };
    },
    clock,
    logger: pino({ level: 'info' }, { write: (line: string) => lines.push(JSON.parse(line)) }),
    now: () => ({ ms: clock.wallMs(), clock: 'platform' }),
    onOutcome: (name, outcome) => outcomes.push(`${name} ${outcome}`),
  });
  runner.start();
}

const CHANGES: Record<string, (reactions: Reaction[]) => Promise<void>> = {
  restart: async (reactions) => {
    await runner.stop(0);
    start(reactions);
  },
  reload: async (reactions) => runner.setReactions(reactions),
};

const stateOf = (id: number) => at.inbox.show(id)?.state;
const deadLines = () => lines.filter(({ event }) => event === 'reaction.dead');

/** Advances the clock until the event has run and will not be retried. */
async function end(id: number): Promise<string | undefined> {
  await vi.waitUntil(
    async () => {
      await clock.advance(5_000);
      return runner.busy === 0 && stateOf(id) !== 'failed' && stateOf(id) !== 'running' && stateOf(id) !== 'received';
    },
    { timeout: 20_000, interval: 2 },
  );
  return stateOf(id);
}

const failed = (id: number) => vi.waitUntil(() => stateOf(id) === 'failed', { timeout: 20_000, interval: 2 });

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-removed-'));
  clock = new ManualClock(NOW);
  at = openJournal(join(folder, 'inbox.db'), clock);
  lines = [];
  outcomes = [];
  failing = new Set(['a']);
});

afterEach(async () => {
  await runner.stop(0);
  at.close();
  rmSync(folder, { recursive: true });
});

describe.each(Object.keys(CHANGES))('event with a failed action after a %s', (how) => {
  const change = CHANGES[how]!;

  it('becomes dead and is logged once if its reaction was removed', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a', 'b'])]);
    await failed(1);
    await change([]);
    expect(await end(1)).toBe('dead');
    await CHANGES.restart!([]);
    await clock.advance(60_000);
    expect(deadLines()).toMatchObject([
      { reaction: 'r', action: 'run a', inboxId: 1, error: expect.stringContaining('reaction removed') },
    ]);
    expect(at.inbox.show(1)!.journal.at(-1)).toMatchObject({ reaction: 'r', action: 'run a', outcome: 'dead' });
    expect(outcomes).toEqual(['r failed', 'r dead']);
  });

  it('becomes dead if its reaction was renamed, although the renamed reaction runs', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a'])]);
    await failed(1);
    failing.clear();
    await change([reaction('renamed', ['a'])]);
    expect(await end(1)).toBe('dead');
    expect(outcomes).toEqual(['r failed', 'renamed done', 'r dead']);
    expect(deadLines()).toMatchObject([{ reaction: 'r', error: expect.stringContaining('reaction removed') }]);
  });

  it('becomes dead if the action was removed from the list', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a', 'b'])]);
    await failed(1);
    await change([reaction('r', ['b'])]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ action: 'run a', error: expect.stringContaining('action removed') }]);
  });

  it('becomes dead if the action was removed and another failed action succeeds', async () => {
    failing.add('b');
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a', 'b'])]);
    await failed(1);
    failing.clear();
    await change([reaction('r', ['b'])]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ action: 'run a' }]);
  });

  it('becomes done if the action was replaced and the replacement succeeds', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a', 'b'])]);
    await failed(1);
    await change([reaction('r', ['corrected', 'b'])]);
    expect(await end(1)).toBe('done');
    expect(deadLines()).toEqual([]);
  });

  it('becomes dead if its reaction no longer matches', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a'])]);
    await failed(1);
    await change([reaction('r', ['a'], { on: ['asset_created'] })]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ error: expect.stringContaining('no longer matches') }]);
  });

  it('becomes dead if it was created by a value rule that was removed', async () => {
    at.inbox.insertMany([{ ...threshold(1, NOW), eventType: 'value_raised' }]);
    start([reaction('r', ['a'], { on: ['value_raised'] })]);
    await failed(1);
    await change([]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ reaction: 'r', eventType: 'value_raised' }]);
  });

  it('is retried if its reaction was removed and added again before the retry', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    start([reaction('r', ['a'])]);
    await failed(1);
    await change([]);
    failing.clear();
    await change([reaction('r', ['a'])]);
    expect(await end(1)).toBe('done');
    expect(deadLines()).toEqual([]);
  });
});

describe('event with a dead action', () => {
  it('becomes dead if the reaction was removed while another reaction is retried', async () => {
    failing.add('c');
    at.inbox.insertMany([threshold(1, NOW)]);
    const other = reaction('other', ['c'], { maxAgeMs: 0 });
    start([reaction('r', ['a'], { maxAgeMs: 5_000 }), other]);
    await vi.waitUntil(
      async () => {
        await clock.advance(5_000);
        return deadLines().length > 0 && stateOf(1) === 'failed';
      },
      { timeout: 20_000, interval: 2 },
    );
    failing.clear();
    await CHANGES.restart!([other]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ reaction: 'r', action: 'run a' }]);
  });
});

describe('event with an action that was running during a crash', () => {
  it('becomes dead if its reaction was removed before the next startup', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    at.inbox.markRunning(1);
    at.inbox.record(1, { reaction: 'r', action: 'run a', state: 'begun', tries: 1 });
    at.close();
    at = openJournal(join(folder, 'inbox.db'), clock);
    start([]);
    expect(await end(1)).toBe('dead');
    expect(deadLines()).toMatchObject([{ reaction: 'r', action: 'run a', tries: 1 }]);
  });
});
