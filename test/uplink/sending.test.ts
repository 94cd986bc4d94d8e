/** What the sender does with a decision, whole: all that store, budget, platform, hooks and log are told, in its order, and what it met. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { TakeRequest } from '../../src/buffer/client/lanes.ts';
import type { PostDecision } from '../../src/uplink/planner.ts';
import { BACKLOG, BATCH, decision, kinds, LIVE, type Post, PROBE, RUN, SendingWorld, TAKEN } from './sending-world.ts';

let world: SendingWorld;
let startMs: number;

beforeEach(() => {
  world = new SendingWorld();
  startMs = world.clock.monotonicMs();
});

describe('a batch', () => {
  const named = { batch: `${RUN}-1`, asset: 7, slice: 4, values: 10 };
  const posted = (path: string, deadlineMs = 90_000) => ({
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    kind: 'paid',
    statusSuffices: true,
    deadlineMs,
    bytes: 100,
  });

  it('is taken, paid for, posted and told, and what it met is handed on, in this order', async () => {
    const heard = await world.perform(LIVE);
    expect(heard).toEqual([
      { take: { asset: 7, lane: 'live', maxValues: 20, maxBytes: 480_000, alongValues: 5, oneInstrumentation: false } },
      { event: 'uplink.taken', ...named, lane: 'live', kind: 'live', bytes: 100, series: 2 },
      { kind: 'cut', batch: BATCH },
      'pays as live',
      { kind: 'sent' },
      posted('/v1/assets/7/values'),
      'hook: delivered',
      { event: 'uplink.posted', ...named, post: 0, meaning: 'delivered', code: '204', tookMs: 0 },
      {
        kind: 'answered',
        answer: {
          post: 0,
          startedMs: startMs + 10,
          instrumentation: undefined,
          verdict: { meaning: 'delivered', code: '204', status: 204, words: 'status 204', answer: TAKEN },
          askedMs: 0,
          at: 1,
        },
      },
    ]);
    expect(world.schedule.of(7)).toMatchObject({ lastPostAtMs: startMs + 10, isDraining: false });
    expect(world.sender.lastPostMs).toBe(Date.UTC(2026, 10, 21) + 10);
    // Nothing waits for its deadline any more.
    expect(world.clock.waiting).toBe(0);
  });

  it('is posted where its instrumentation says, as large as posts may be now, and is asked to wait as the answer says', async () => {
    world.address = { path: '/v1/instrumentations/12/values', instrumentation: 12 };
    world.byInstrumentation = true;
    world.size.setLimit(9_000);
    world.faults.number();
    world.answers.came(7, 100, 20, startMs);
    world.answer = async () => {
      await world.clock.sleep(300);
      world.faults.number();
      return { status: 503, text: '', redact: String, header: (name) => (name === 'retry-after' ? '7' : undefined) };
    };
    const heard = await world.perform({ ...BACKLOG, trial: true });
    expect(heard[0]).toEqual({
      take: { asset: 7, lane: 'backlog', maxValues: 20, maxBytes: 9_000, oneInstrumentation: true },
    });
    expect(heard[1]).toMatchObject({ event: 'uplink.taken', lane: 'backlog', kind: 'backlog', trial: true });
    expect(heard[5]).toEqual(posted('/v1/instrumentations/12/values', 15_000));
    expect(heard.slice(6)).toMatchObject([
      'hook: later',
      { event: 'uplink.posted', ...named, post: 1, meaning: 'later', code: '503', tookMs: 300 },
      { kind: 'answered', answer: { post: 1, startedMs: startMs + 10, instrumentation: 12, askedMs: 7_000, at: 3 } },
    ]);
  });

  it('has its lane from the moment of the decision on, a probe both, and a name of its own', async () => {
    const begun = (one: PostDecision) => {
      void world.sender.perform(one);
      return [...world.schedule.deliveries].at(-1)!;
    };
    const state = { kind: 'taking', after: 'next' };
    const common = { asset: 7, trial: false, probe: undefined, acceptedMs: undefined, state };
    const live = begun(LIVE);
    expect(live).toEqual({ ...common, name: `${RUN}-1`, lane: 'live', kind: 'live', acceptedMs: 250 });
    expect(world.schedule.of(7)).toMatchObject({ live, backlog: undefined });
    const backlog = begun({ ...BACKLOG, trial: true });
    expect(backlog).toEqual({ ...common, name: `${RUN}-2`, lane: 'backlog', kind: 'backlog', trial: true });
    expect(world.schedule.of(7)).toMatchObject({ live, backlog });
    // Of an asset that has nothing waiting any more.
    const gone = begun(decision('live', { asset: 8 }));
    expect(gone).toEqual({ ...common, name: `${RUN}-3`, asset: 8, lane: 'live', kind: 'live' });
    expect(world.schedule.of(8)).toMatchObject({ live: gone, backlog: undefined });
    const probe = begun(decision('probe', { asset: 9 }, { probe: PROBE }));
    expect(probe).toEqual({ ...common, name: `${RUN}-4`, asset: 9, lane: 'backlog', kind: 'probe', probe: PROBE });
    expect(world.schedule.of(9)).toMatchObject({ live: probe, backlog: probe });
    await world.clock.advance(1_000);
  });

  it.each<[string, Post, string]>([
    ['live', LIVE, 'live'],
    ['backlog', BACKLOG, 'backlog'],
    ['backlog with live values along', decision('backlog', { lane: 'live', alongValues: 20 }), 'backlog'],
    ['a probe', decision('probe', {}, { probe: PROBE }), 'probe'],
    ['a try of the backlog', { ...BACKLOG, trial: true }, 'live'],
    ['a try of a probe', decision('probe', {}, { probe: PROBE, trial: true }), 'live'],
  ])('that is %s is paid as what it is', async (_name, one, kind) => {
    expect(await world.perform(one)).toContain(`pays as ${kind}`);
  });

  it.each<[string, number, number, Partial<TakeRequest>, boolean]>([
    ['full of backlog', 20, 20, {}, true],
    ['of one less', 19, 19, {}, false],
    ['full, with one value of the backlog', 20, 1, { lane: 'live', alongValues: 5 }, true],
    ['full of live values', 20, 0, { lane: 'live', alongValues: 5 }, false],
    ['not as full as the backlog along may make it', 20, 1, { lane: 'live', alongValues: 30 }, false],
    ['as full as that', 30, 1, { lane: 'live', alongValues: 30 }, true],
  ])(
    '%s: whether more of the backlog is to follow, and whose lanes it has',
    async (_name, values, backlogValues, take, isDraining) => {
      world.schedule.of(7).isDraining = !isDraining;
      world.given = [{ ...BATCH, values, backlogValues, liveValues: values - backlogValues }];
      const done = world.sender.perform(decision('backlog', take));
      await world.clock.advance(10);
      const [delivery] = world.schedule.deliveries;
      expect(world.schedule.of(7)).toMatchObject({
        isDraining,
        live: backlogValues > 0 || take.lane ? delivery : undefined,
        backlog: backlogValues > 0 || !take.lane ? delivery : undefined,
        lastBacklogAtMs: backlogValues > 0 ? startMs + 10 : Number.NEGATIVE_INFINITY,
      });
      await world.clock.advance(1_000);
      await done;
    },
  );
});

describe('where the store', () => {
  it('has nothing, that is what the batch meets; a probe asks for live values before', async () => {
    world.given = [];
    expect(kinds(await world.perform(LIVE))).toEqual(['nothing']);
    expect(kinds(await world.perform(BACKLOG))).toEqual(['nothing']);
    const probe = decision('probe', { maxValues: 1, onlySeries: [1] }, { probe: PROBE });
    const take = {
      asset: 7,
      lane: 'backlog',
      maxValues: 1,
      maxBytes: 480_000,
      onlySeries: [1],
      oneInstrumentation: false,
    };
    expect(await world.perform(probe)).toEqual([{ take }, { take: { ...take, lane: 'live' } }, { kind: 'nothing' }]);
    world.given = [undefined, BATCH];
    expect(kinds(await world.perform(probe))).toEqual(['probe', 'cut', 'sent', 'paid', 'answered']);
    expect(world.schedule.of(7)).toMatchObject({ isDraining: false, lastBacklogAtMs: Number.NEGATIVE_INFINITY });
  });

  it('fails, it is said, and the asset pauses for a second', async () => {
    world.given = [new Error('the disk is away')];
    expect((await world.perform(BACKLOG)).slice(1)).toEqual([
      { event: 'uplink.store_failed', error: 'the disk is away', count: 1 },
      { kind: 'nothing' },
    ]);
    expect(world.schedule.of(7)).toMatchObject({ pausedUntilMs: startMs + 1_010, failures: 0, isDraining: false });
  });

  it('gives what has no address, nothing is paid or posted', async () => {
    world.address = undefined;
    expect((await world.perform(LIVE)).slice(2)).toEqual([{ kind: 'unaddressed', batch: BATCH }]);
    expect(world.schedule.of(7).live).toBeDefined();
  });
});

describe('of what the backlog may take', () => {
  it.each<[string, Post, number, number]>([
    // What is left of 1,000 while the store looks, and when it has given what it has.
    [
      'a post of it has all it asks for, until it is known what there is',
      decision('backlog', { maxValues: 800 }),
      200,
      997,
    ],
    ['so has a live post that takes it along', decision('live', { maxValues: 5_000, alongValues: 600 }), 400, 997],
    ['one that takes none along has nothing', decision('live', { maxValues: 5_000 }), 1_000, 997],
  ])('%s', async (_name, one, meanwhile, after) => {
    world.backfill.setRate(100, 10_000, 5_000);
    await world.clock.advance(20_000);
    const available = () => world.backfill.available(startMs + 20_000);
    expect(available()).toBe(1_000);
    world.given = [{ ...BATCH, backlogValues: 3 }, undefined, new Error('the disk is away')];
    const posting = world.sender.perform(one);
    expect(available()).toBe(meanwhile);
    await world.clock.advance(10);
    expect(available()).toBe(after);
    // Where there was nothing, or no answer, nothing was taken.
    for (let turn = 0; turn < 2; turn++) {
      const nothing = world.sender.perform(one);
      expect(available()).toBe(meanwhile - 3);
      await world.clock.advance(10);
      expect(available()).toBe(after);
      await nothing;
    }
    await posting;
  });

  it('nothing is saved up by a post that began when there was no rate', async () => {
    const done = world.sender.perform(decision('backlog', { maxValues: 800 }));
    world.backfill.setRate(100, 10_000, 5_000);
    await world.clock.advance(10);
    expect(world.backfill.available(startMs + 10)).toBe(1);
    await done;
  });
});
