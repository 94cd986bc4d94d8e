import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Action } from '../../../src/config/action-kinds.ts';
import type { Reaction } from '../../../src/config/reactions.ts';
import type { ActionResult, Perform } from '../../../src/reactions/action-kind.ts';
import { ReactionRunner, type ReactionRunnerOptions } from '../../../src/reactions/engine/runner.ts';
import type { JudgingTime } from '../../../src/reactions/rules.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openJournal, threshold } from './parts/inbox-journal.ts';

const NOW = Date.UTC(2026, 10, 21);
let folder: string;
let clock: ManualClock;
let at: ReturnType<typeof openJournal>;
let runner: ReactionRunner;
/** Performed actions: reaction, value of the event. */
let performed: string[];
let outcomes: string[];
let behave: (name: string, value: number) => ActionResult | Promise<ActionResult>;

const perform: Perform = async (action, context) => {
  const { value } = (context.event.content as { data: { value: number } }).data;
  const name = `${context.reaction}/${action.kind === 'run' ? (action.command as string[])[0] : action.kind}`;
  performed.push(`${name} ${value}`);
  return behave(name, value);
};

function rule(name: string, more: Partial<Reaction> = {}, ...commands: string[]): Reaction {
  const actions = (commands.length ? commands : ['a']).map(
    (command): Action => ({ kind: 'run', command: [command], timeoutMs: 1_000 }),
  );
  return { name, on: '*', conditions: [], cooldownMs: 0, maxAgeMs: 600_000, actions, ...more };
}

function build(reactions: Reaction[], more: Partial<ReactionRunnerOptions> = {}): ReactionRunner {
  runner = new ReactionRunner({
    journal: at.journal,
    reactions,
    perform,
    clock,
    logger: silentLogger(),
    now: () => ({ ms: clock.wallMs(), clock: 'platform' }),
    onOutcome: (name, outcome) => outcomes.push(`${name} ${outcome}`),
    ...more,
  });
  return runner;
}

const until = (condition: () => boolean | Promise<boolean>, options: { timeout?: number; interval?: number } = {}) =>
  vi.waitUntil(condition, { timeout: 20_000, interval: 5, ...options });
const stateOf = (id: number) => at.inbox.show(id)?.state;
const done = () => Promise.resolve({ outcome: 'done' } as const);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-reactions-'));
  clock = new ManualClock(NOW);
  at = openJournal(join(folder, 'inbox.db'), clock);
  performed = [];
  outcomes = [];
  behave = done;
});

afterEach(async () => {
  await runner.stop(0);
  at.close();
  rmSync(folder, { recursive: true });
});

describe('reaction', () => {
  it('runs once for a matching event, and never for other events', async () => {
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW)]);
    const only2 = rule('r', { conditions: [{ kind: 'equals', path: 'data.value', anyOf: [2] }] });
    build([only2]).start();
    await until(() => stateOf(1) === 'done' && stateOf(2) === 'done');
    runner.wake();
    await clock.advance(60_000);
    expect(performed).toEqual(['r/a 2']);
    expect(outcomes).toEqual(['r done']);
    expect(at.inbox.show(2)?.journal).toMatchObject([{ reaction: 'r', action: 'run a', outcome: 'done' }]);
  });

  it('retries only the failed action, up to its maximum number of attempts', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    behave = (name) => (name === 'r/b' ? { outcome: 'failed', detail: 'exit 1' } : { outcome: 'done' });
    build([rule('r', {}, 'a', 'b', 'c')], { maxTries: 3 }).start();
    await until(() => stateOf(1) === 'failed');
    expect(performed).toEqual(['r/a 1', 'r/b 1', 'r/c 1']);
    await clock.advance(120_000);
    await until(() => stateOf(1) === 'dead');
    await clock.advance(600_000);
    expect(performed).toEqual(['r/a 1', 'r/b 1', 'r/c 1', 'r/b 1', 'r/b 1']);
    expect(outcomes).toEqual(['r failed', 'r failed', 'r dead']);
  });

  it('passes the positions of the reaction and the action to each attempt', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    const positions: string[] = [];
    const failing: Perform = async ({ kind }, { reaction, position }) => {
      positions.push(`${reaction} ${kind} ${position.join(' ')}`);
      return { outcome: positions.length <= 3 ? 'failed' : 'done' };
    };
    const never = rule('never', { conditions: [{ kind: 'equals', path: 'data.value', anyOf: [2] }] });
    build([never, rule('r', {}, 'a', 'b'), rule('s')], { perform: failing }).start();
    await until(() => stateOf(1) === 'failed');
    await clock.advance(120_000);
    await until(() => stateOf(1) === 'done');
    const once = ['r run 1 0', 'r run 1 1', 's run 2 0'];
    expect(positions.toSorted()).toEqual([...once, ...once].toSorted());
  });

  it('is completed when a retry succeeds', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    behave = () => (performed.length < 3 ? { outcome: 'failed' } : { outcome: 'done' });
    build([rule('r')]).start();
    await until(() => stateOf(1) === 'failed');
    await clock.advance(120_000);
    await until(() => stateOf(1) === 'done');
    expect(performed).toHaveLength(3);
  });

  it('repeats only the failed action after a restart', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    behave = (name) => (name === 'r/b' ? { outcome: 'failed' } : { outcome: 'done' });
    build([rule('r', {}, 'a', 'b')]).start();
    await until(() => stateOf(1) === 'failed');
    await runner.stop(0);
    behave = done;
    build([rule('r', {}, 'a', 'b')]).start();
    await clock.advance(30_000);
    await until(() => stateOf(1) === 'done');
    expect(performed).toEqual(['r/a 1', 'r/b 1', 'r/b 1']);
  });

  it('skips events for the same object during its cooldown, even after a restart', async () => {
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW), threshold(3, NOW, 4712)]);
    build([rule('r', { cooldownMs: 60_000 })]).start();
    await until(() => [1, 2, 3].every((id) => stateOf(id) === 'done'));
    expect(performed.sort()).toEqual(['r/a 1', 'r/a 3']);
    await runner.stop(0);
    await clock.advance(59_000);
    at.inbox.insertMany([threshold(4, NOW)]);
    build([rule('r', { cooldownMs: 60_000 })]).start();
    await until(() => stateOf(4) === 'done');
    await clock.advance(1_000);
    at.inbox.insertMany([threshold(5, NOW)]);
    runner.wake();
    await until(() => stateOf(5) === 'done');
    expect(performed.sort()).toEqual(['r/a 1', 'r/a 3', 'r/a 5']);
    expect(outcomes.filter((one) => one === 'r cooldown')).toHaveLength(2);
  });

  it('measures its cooldown independently of the wall clock', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    build([rule('r', { cooldownMs: 60_000, maxAgeMs: 0 })]).start();
    await until(() => stateOf(1) === 'done');
    await runner.stop(0);
    clock.jumpWall(-NOW);
    at.inbox.insertMany([threshold(2, NOW)]);
    build([rule('r', { cooldownMs: 60_000, maxAgeMs: 0 })]).start();
    await until(() => stateOf(2) === 'done');
    expect(performed).toEqual(['r/a 1']);
    await clock.advance(60_000);
    at.inbox.insertMany([threshold(3, NOW)]);
    runner.wake();
    await until(() => stateOf(3) === 'done');
    expect(performed).toEqual(['r/a 1', 'r/a 3']);
  });

  it('runs for an old event only if it is replayed manually', async () => {
    at.inbox.insertMany([threshold(1, NOW - 600_001)]);
    build([rule('r')]).start();
    await until(() => stateOf(1) === 'done');
    expect(performed).toEqual([]);
    expect(outcomes).toEqual(['r expired']);
    expect(await runner.replay(1)).toBe('queued');
    await until(() => stateOf(1) === 'done' && performed.length === 1);
    expect(await runner.replay(2)).toBe('unknown');
  });

  it('repeats all actions in a replay, then retries only failed actions', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    build([rule('r', {}, 'a', 'b')]).start();
    await until(() => stateOf(1) === 'done');
    behave = (name) => (name === 'r/b' ? { outcome: 'failed' } : { outcome: 'done' });
    await runner.replay(1);
    await until(() => stateOf(1) === 'failed');
    await runner.stop(0);
    behave = done;
    build([rule('r', {}, 'a', 'b')]).start();
    await clock.advance(30_000);
    await until(() => stateOf(1) === 'done');
    expect(performed).toEqual(['r/a 1', 'r/b 1', 'r/a 1', 'r/b 1', 'r/b 1']);
  });

  it('waits for a trusted clock to determine the event age', async () => {
    let trusted: JudgingTime | undefined;
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW - 3_600_000, 4712)]);
    build([rule('r')], { now: () => trusted }).start();
    await until(() => stateOf(1) === 'failed' && stateOf(2) === 'failed');
    expect(performed).toEqual([]);
    trusted = { ms: NOW + 5_000, clock: 'platform' };
    await clock.advance(10_000);
    await until(() => stateOf(1) === 'done' && stateOf(2) === 'done');
    expect(performed).toEqual(['r/a 1']);
  });
});

describe('runner', () => {
  it('processes events for an object in order, and events for different objects in parallel', async () => {
    const release: (() => void)[] = [];
    behave = (_, value) =>
      value < 10 ? new Promise((resolve) => release.push(() => resolve({ outcome: 'done' }))) : { outcome: 'done' };
    at.inbox.insertMany(Array.from({ length: 80 }, (_, index) => threshold(index / 100, NOW)));
    at.inbox.insertMany([threshold(10, NOW, 4712)]);
    build([rule('r')]).start();
    await until(() => stateOf(81) === 'done');
    expect(performed).toEqual(['r/a 0', 'r/a 10']);
    for (let id = 1; id <= 80; id++) {
      await until(() => release.length > 0, { interval: 2 });
      release.shift()!();
      await until(() => stateOf(id) === 'done', { interval: 2 });
    }
    expect(performed.filter((one) => one !== 'r/a 10')).toEqual(
      Array.from({ length: 80 }, (_, index) => `r/a ${index / 100}`),
    );
  });

  it('finds events queued behind thousands of events for another object with a slow reaction', async () => {
    behave = (_, value) => (value < 10 ? new Promise(() => {}) : { outcome: 'done' });
    at.inbox.insertMany(Array.from({ length: 3_500 }, (_, index) => threshold(index / 1_000, NOW)));
    at.inbox.insertMany([threshold(10, NOW, 4712), threshold(11, NOW, 4712)]);
    build([rule('r')], {
      perform: (action, context) => {
        const stopped = new Promise<ActionResult>((resolve) =>
          context.signal.addEventListener('abort', () => resolve({ outcome: 'interrupted' }), { once: true }),
        );
        return Promise.race([perform(action, context), stopped]);
      },
    }).start();
    await until(
      async () => {
        await clock.advance(1_000);
        return stateOf(3_502) === 'done';
      },
      { timeout: 20_000 },
    );
    expect(performed).toEqual(['r/a 0', 'r/a 10', 'r/a 11']);
  });

  it('preserves event order per object when a slot becomes free during a scan', async () => {
    const gate = Promise.withResolvers<ActionResult>();
    behave = (_, value) => (value === 0 ? gate.promise : { outcome: 'done' });
    const others = Array.from({ length: 50 }, (_, index) =>
      threshold(index + 1, NOW, index % 2 ? 8_000 : 9_000 + index),
    );
    at.inbox.insertMany([threshold(0, NOW, 1), ...others]);
    const fresh = async (limit: number, afterId: number) => {
      // A slot becomes free between two pages.
      if (performed.length >= 10 && stateOf(1) !== 'done') {
        gate.resolve({ outcome: 'done' });
        await until(() => stateOf(1) === 'done');
      }
      return at.journal.fresh(limit, afterId);
    };
    const journal = new Proxy(at.journal, {
      get: (target, method: keyof typeof at.journal) => (method === 'fresh' ? fresh : target[method]),
    });
    build([rule('r')], { perRule: 2, journal }).start();
    await until(() => stateOf(51) === 'done', { timeout: 10_000 });
    const inOrder = performed.map((one) => Number(one.split(' ')[1])).filter((value) => value % 2 === 0 && value > 0);
    expect(inOrder).toEqual(Array.from({ length: 25 }, (_, index) => 2 * index + 2));
  });

  it('limits the number of events in progress per rule', async () => {
    let under = 0;
    let most = 0;
    behave = async () => {
      most = Math.max(most, ++under);
      await new Promise((resolve) => setImmediate(resolve));
      under--;
      return { outcome: 'done' };
    };
    at.inbox.insertMany(Array.from({ length: 40 }, (_, index) => threshold(index, NOW, 5_000 + index)));
    build([rule('r')], { perRule: 3 }).start();
    await until(() => performed.length === 40 && stateOf(40) === 'done');
    expect(most).toBe(3);
  });

  it('blocks only the retried action for later events for the object', async () => {
    behave = (name, value) =>
      name === 'r/post' && value === 1 && performed.length < 4 ? { outcome: 'failed' } : { outcome: 'done' };
    at.inbox.insertMany([threshold(1, NOW)]);
    build([rule('r', {}, 'post', 'valve')]).start();
    await until(() => stateOf(1) === 'failed');
    at.inbox.insertMany([threshold(2, NOW)]);
    runner.wake();
    await until(() => stateOf(2) === 'failed');
    expect(performed).toEqual(['r/post 1', 'r/valve 1', 'r/valve 2']);
    await clock.advance(60_000);
    await until(() => stateOf(1) === 'done' && stateOf(2) === 'done');
    const posts = performed.filter((one) => one.startsWith('r/post'));
    expect(posts.lastIndexOf('r/post 1')).toBeLessThan(posts.indexOf('r/post 2'));
    expect(posts.filter((one) => one === 'r/post 2')).toHaveLength(1);
  });

  it('processes new events before due retries', async () => {
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW, 4712)]);
    behave = () => ({ outcome: 'failed' });
    build([rule('r')], { perRule: 1 }).start();
    await until(() => stateOf(1) === 'failed' && stateOf(2) === 'failed');
    await runner.stop(0);
    await clock.advance(60_000);
    at.inbox.insertMany([threshold(3, NOW, 4713)]);
    performed = [];
    behave = done;
    build([rule('r')], { perRule: 1 }).start();
    await until(() => [1, 2, 3].every((id) => stateOf(id) === 'done'));
    expect(performed).toEqual(['r/a 3', 'r/a 1', 'r/a 2']);
  });

  it('preserves event order per object for each reaction', async () => {
    const gates = new Map<string, () => void>();
    behave = (name, value) =>
      name === 'fast/a' && value !== 1
        ? { outcome: 'done' }
        : new Promise((resolve) => gates.set(`${name} ${value}`, () => resolve({ outcome: 'done' })));
    const slow = rule('slow', { conditions: [{ kind: 'range', path: 'data.value', above: 1 }] });
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW), threshold(3, NOW)]);
    build([rule('fast'), slow]).start();
    await until(() => gates.size === 2);
    expect(performed.toSorted()).toEqual(['fast/a 1', 'slow/a 2']);
    gates.get('fast/a 1')!();
    await until(() => performed.includes('fast/a 3'));
    expect(performed.filter((one) => one.startsWith('fast'))).toEqual(['fast/a 1', 'fast/a 2', 'fast/a 3']);
    expect(performed.filter((one) => one.startsWith('slow'))).toEqual(['slow/a 2']);
    gates.get('slow/a 2')!();
    await until(() => gates.has('slow/a 3'));
    gates.get('slow/a 3')!();
    await until(() => [1, 2, 3].every((id) => stateOf(id) === 'done'));
  });

  it('processes small events while large events use most of the memory budget', async () => {
    const large = (value: number, instrumentation: number) => {
      const body = Buffer.from(threshold(value, NOW, instrumentation).payload).toString();
      return readEvent(Buffer.from(body.replace('"FT-101"', `"${'x'.repeat(500_000)}"`)), NOW);
    };
    at.inbox.insertMany([large(1, 1), large(2, 2), large(3, 3), threshold(4, NOW, 4)]);
    const release: (() => void)[] = [];
    behave = (_, value) =>
      value === 4 ? { outcome: 'done' } : new Promise((resolve) => release.push(() => resolve({ outcome: 'done' })));
    build([rule('r')], { memoryBytes: 4_000_000 }).start();
    await until(() => stateOf(4) === 'done');
    expect(performed).toEqual(['r/a 1', 'r/a 4']);
    for (const id of [1, 2, 3]) {
      await until(() => release.length > 0);
      release.shift()!();
      await until(() => stateOf(id) === 'done');
    }
  });

  it('completes events without a matching rule immediately', async () => {
    const only1 = rule('r', { conditions: [{ kind: 'equals', path: 'data.value', anyOf: [1] }] });
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW)]);
    let finish = () => {};
    behave = () => new Promise((resolve) => (finish = () => resolve({ outcome: 'done' })));
    build([only1]).start();
    await until(() => stateOf(2) === 'done');
    expect(stateOf(1)).toBe('running');
    finish();
    await until(() => stateOf(1) === 'done');
  });

  describe('with a read-only journal', () => {
    let broken: boolean;
    let saysOf: string[];
    const flaky = () =>
      new Proxy(at.journal, {
        get: (journal, method: keyof typeof at.journal) =>
          broken && !['fresh', 'due', 'retried'].includes(method)
            ? async () => {
                throw new StoreError('disk full', { code: 'store.unwritable', retryable: true });
              }
            : journal[method],
      });
    const startFlaky = (reaction: Reaction) => {
      broken = true;
      saysOf = [];
      const error = ({ event }: { event: string }) => void saysOf.push(event);
      const logger = Object.assign(silentLogger(), { error }) as never;
      build([reaction], { journal: flaky(), logger }).start();
    };

    it('sends POST requests, and completes the event when the journal is writable again', async () => {
      at.inbox.insertMany([threshold(1, NOW)]);
      startFlaky(
        rule('r', { cooldownMs: 1_000, actions: [{ kind: 'post', url: 'http://127.0.0.1:1', timeoutMs: 1 }] }),
      );
      await until(() => performed.length === 1);
      await clock.advance(30_000);
      expect(stateOf(1)).toBe('received');
      broken = false;
      await clock.advance(60_000);
      await until(() => stateOf(1) === 'done');
      expect(performed).toEqual(['r/post 1']);
    });

    it('starts no command, logs this once, and counts no attempt', async () => {
      at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW)]);
      startFlaky(rule('r'));
      await until(() => saysOf.length > 0);
      for (let i = 0; i < 20; i++) {
        await clock.advance(1_000);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect([performed, saysOf]).toEqual([[], ['reaction.not_started']]);
      broken = false;
      await until(async () => {
        await clock.advance(1_000);
        return stateOf(1) === 'done' && stateOf(2) === 'done';
      });
      expect(performed).toEqual(['r/a 1', 'r/a 2']);
      expect(at.inbox.show(1)?.journal.map(({ outcome }) => outcome)).toEqual(['done']);
    });
  });

  it('preserves event order per object across a restart while an event is waiting for its retry', async () => {
    at.inbox.insertMany([threshold(1, NOW), threshold(9, NOW, 4712)]);
    behave = (_, value) => ({ outcome: value === 1 ? 'failed' : 'done' });
    build([rule('r')]).start();
    await until(() => stateOf(1) === 'failed' && stateOf(2) === 'done');
    await runner.stop(0);
    at.inbox.insertMany([threshold(2, NOW)]);
    behave = done;
    performed = [];
    build([rule('r')]).start();
    await until(async () => {
      await clock.advance(1_000);
      return stateOf(1) === 'done' && stateOf(3) === 'done';
    });
    expect(performed).toEqual(['r/a 1', 'r/a 2']);
  });

  it('processes events with deeply nested lists', async () => {
    const deep = Buffer.from(threshold(1, NOW).payload)
      .toString()
      .replace('"data":', `"assets":${'['.repeat(10_000)}${']'.repeat(10_000)},"data":`);
    at.inbox.insertMany([readEvent(Buffer.from(deep), NOW), threshold(2, NOW, 4712)]);
    build([rule('r', { conditions: [{ kind: 'equals', path: 'assets.id', anyOf: [7, null] }] })]).start();
    await until(() => stateOf(1) === 'done' && stateOf(2) === 'done');
    expect(performed.sort()).toEqual(['r/a 1', 'r/a 2']);
  });

  it('applies reloaded rules to new events', async () => {
    at.inbox.insertMany([threshold(1, NOW)]);
    build([rule('old')]).start();
    await until(() => stateOf(1) === 'done');
    runner.setReactions([rule('new')]);
    at.inbox.insertMany([threshold(2, NOW)]);
    runner.wake();
    await until(() => stateOf(2) === 'done');
    expect(performed).toEqual(['old/a 1', 'new/a 2']);
  });
});

describe('runner shutdown', () => {
  it('waits for reactions in progress and starts no new ones', async () => {
    let finish = () => {};
    behave = () => new Promise((resolve) => (finish = () => resolve({ outcome: 'done' })));
    at.inbox.insertMany([threshold(1, NOW), threshold(2, NOW)]);
    build([rule('r')]).start();
    await until(() => performed.length === 1);
    const stopped = runner.stop(20_000);
    finish();
    await stopped;
    expect([stateOf(1), stateOf(2)]).toEqual(['done', 'received']);
    expect(performed).toEqual(['r/a 1']);
  });

  it('interrupts reactions after its time limit, and reruns them at the next startup', async () => {
    let seen: AbortSignal | undefined;
    at.inbox.insertMany([threshold(1, NOW)]);
    build([rule('r', { cooldownMs: 60_000 })], {
      perform: async (_, { signal }) => {
        seen = signal;
        performed.push('begun');
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        return { outcome: 'interrupted' };
      },
    }).start();
    await until(() => performed.length === 1);
    const stopped = runner.stop(20_000);
    await clock.advance(19_999);
    expect(seen?.aborted).toBe(false);
    await clock.advance(1);
    await stopped;
    expect(stateOf(1)).toBe('running');
    at.close();
    at = openJournal(join(folder, 'inbox.db'), clock);
    build([rule('r', { cooldownMs: 60_000 })]).start();
    await until(() => stateOf(1) === 'failed');
    expect(performed).toEqual(['begun']);
    await clock.advance(5_000);
    await until(() => stateOf(1) === 'done');
    expect(performed).toEqual(['begun', 'r/a 1']);
  });
});

describe('runner watchdog', () => {
  it('detects an inbox scan that never finishes, and ignores failed scans', async () => {
    let answer: (() => void) | undefined;
    let failing = true;
    const journal = {
      ...at.journal,
      retried: async () => [],
      due: async () => [],
      fresh: (...asked: Parameters<typeof at.journal.fresh>) => {
        if (failing) return Promise.reject(new StoreError('the disk is away', { code: 'store.io' }));
        return new Promise<Awaited<ReturnType<typeof at.journal.fresh>>>((resolve) => {
          answer = () => resolve(at.journal.fresh(...asked));
        });
      },
    };
    build([rule('r')], { journal }).start();
    await clock.advance(600_000);
    expect(runner.isAlive(clock.monotonicMs(), 120_000)).toBe(true);
    failing = false;
    await clock.advance(100_000);
    expect(answer).toBeDefined();
    await clock.advance(120_000);
    expect(runner.isAlive(clock.monotonicMs(), 120_000)).toBe(false);
    failing = true;
    answer!();
    await vi.waitFor(() => expect(runner.isAlive(clock.monotonicMs(), 120_000)).toBe(true));
  });
});
