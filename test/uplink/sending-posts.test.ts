/** What the sender does until a batch or a slice is paid for, and with the post after that. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { BatchDelivery, DeliveryState } from '../../src/uplink/batch-delivery.ts';
import type { ValuesAnswer, ValuesCall } from '../../src/uplink/ports.ts';
import { BATCH, kinds, LIVE, SendingWorld, TAKEN } from './sending-world.ts';

let world: SendingWorld;
let startMs: number;

beforeEach(() => {
  world = new SendingWorld();
  startMs = world.clock.monotonicMs();
});

describe('a batch that waits for its request', () => {
  const asked = (heard: unknown[]) => heard.filter((one) => typeof one === 'string' && !one.startsWith('hook'));

  it.each<[number[], number]>([
    [[2_000], 2_000],
    [[1.5], 1.5],
    // One that goes to somebody else first is asked for again a moment later.
    [[0], 1],
    [[-5, 0.5], 2],
    [[1_999, 2_000, 300], 4_299],
  ])('goes as soon as there is one: where that is in %j ms, after %d', async (waitsMs, tookMs) => {
    world.waitsMs.push(...waitsMs);
    const heard = await world.perform(LIVE, 10_000);
    expect(asked(heard)).toEqual([...waitsMs.map(() => 'waits as live'), 'pays as live']);
    expect(heard.at(-1)).toMatchObject({ kind: 'answered', answer: { startedMs: startMs + 10 + tookMs } });
  });

  it.each<[number[]]>([[[2_001]], [[500, 2_001]]])(
    'goes back where it would wait longer than two seconds: %j',
    async (waitsMs) => {
      world.waitsMs.push(...waitsMs);
      const heard = await world.perform(LIVE, 10_000);
      expect(asked(heard)).toEqual(waitsMs.map(() => 'waits as live'));
      expect(heard.at(-1)).toEqual({ kind: 'unsent', paid: false });
      expect(world.schedule.of(7).lastPostAtMs).toBe(Number.NEGATIVE_INFINITY);
    },
  );

  it('goes back unpaid where it is recalled meanwhile, at once where the agent stops', async () => {
    world.waitsMs.push(1_000);
    const done = world.sender.perform(LIVE);
    await world.clock.advance(20);
    world.recall();
    world.stop.abort(new Error('the uplink stops'));
    await world.clock.advance(0);
    await done;
    expect(world.heard().slice(3)).toEqual(['waits as live', { kind: 'unsent', paid: false }]);
  });

  it('asks for none where it was recalled while the store looked', async () => {
    const done = world.sender.perform(LIVE);
    world.recall();
    await world.clock.advance(10);
    await done;
    expect(world.heard().slice(2)).toEqual([
      { kind: 'cut', batch: BATCH },
      { kind: 'unsent', paid: false },
    ]);
  });

  it.each<[string, () => void]>([
    ['recalled', () => world.recall()],
    ['without an address', () => Object.assign(world, { address: undefined })],
  ])('goes back paid where it is %s in the moment in which it pays', async (_name, happens) => {
    world.whenPaid = happens;
    expect((await world.perform(LIVE)).slice(3)).toEqual(['pays as live', { kind: 'unsent', paid: true }]);
  });
});

describe('a slice', () => {
  const slices = (isDivided: boolean): DeliveryState => {
    const waiting = [5, 6].map((id) => ({ ...BATCH, id }));
    const none = { deferred: [], shelved: [], again: new Set<number>(), loneRefusals: 0, taken: 0 };
    return { kind: 'ready', sinceMs: 5, slices: { ...none, waiting, isDivided } };
  };
  const begin = (facts: Partial<BatchDelivery>, isDivided = true) =>
    world.schedule.begin({
      name: 'x',
      asset: 7,
      lane: 'backlog',
      kind: 'backlog',
      probe: undefined,
      trial: false,
      state: slices(isDivided),
      ...facts,
    });
  const turn = (name = 'x') => {
    const delivery = { name, asset: 7, lane: 'backlog', trial: false, sinceMs: 5 } as const;
    return world.perform({ do: 'slice', delivery, competed: false });
  };

  it('is posted when its turn has come, the first of those that wait', async () => {
    begin({});
    const heard = await turn();
    expect(heard.slice(0, 3)).toEqual([{ kind: 'turn' }, 'pays as backlog', { kind: 'sent' }]);
    expect(heard.slice(4)).toMatchObject([
      'hook: delivered',
      { event: 'uplink.posted', batch: 'x', slice: 5 },
      { kind: 'answered', answer: { post: 0 } },
    ]);
  });

  it.each<[string, Partial<BatchDelivery>, boolean, string]>([
    ['of a probe that is divided as what it is of', { kind: 'probe' }, true, 'backlog'],
    ['of a probe that is divided as live where it holds live values', { kind: 'probe', lane: 'live' }, true, 'live'],
    ['of a probe that is whole as a probe', { kind: 'probe' }, false, 'probe'],
    ['of a try as live', { trial: true }, true, 'live'],
  ])('%s is paid', async (_name, facts, isDivided, kind) => {
    begin(facts, isDivided);
    expect(await turn()).toContain(`pays as ${kind}`);
  });

  it('of a batch that has ended meanwhile is nothing', async () => {
    begin({});
    expect(await turn('y')).toEqual([]);
  });
});

describe('a post', () => {
  /** No answer, until it is broken off. */
  const hang = ({ signal }: ValuesCall) =>
    new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

  it.each([
    ['a try', true, 50_000],
    ['any other', false, 600_000],
  ])('that hangs is ended, where it is %s, after %s: %d ms', async (_name, trial, limitMs) => {
    world.answer = hang;
    world.answers.came(7, 100, 20, startMs);
    const done = world.sender.perform({ ...LIVE, trial });
    await world.clock.advance(10 + limitMs - 1);
    expect(kinds(world.heard()).at(-1)).toBe('paid');
    await world.clock.advance(1);
    await done;
    const words = 'the post took too long';
    expect(world.heard()).toMatchObject([
      'hook: later',
      { event: 'uplink.posted', meaning: 'later', code: 'platform.timeout', tookMs: limitMs },
      { kind: 'answered', answer: { verdict: { meaning: 'later', code: 'platform.timeout', status: 0, words } } },
    ]);
    // The next of that asset may take twice as long, others are not waited for any longer.
    expect([7, 8].map((asset) => world.answers.limitMs(asset, 100, startMs))).toEqual([30_000, 15_000]);
  });

  it('that is answered as the process goes on after it stood still counts as answered', async () => {
    let answer = (_given: ValuesAnswer): void => {};
    world.answer = (call) => Promise.race([hang(call), new Promise<ValuesAnswer>((resolve) => (answer = resolve))]);
    // The timer is late, and what has come is read in the same turn.
    const after = world.clock.after.bind(world.clock);
    world.clock.after = (ms, call) =>
      after(ms, () => {
        call();
        answer(TAKEN);
      });
    const done = world.sender.perform({ ...LIVE, trial: true });
    await world.clock.advance(50_010);
    await done;
    expect(world.heard().at(-1)).toMatchObject({ kind: 'answered', answer: { verdict: { code: '204' } } });
  });

  it('that the agent breaks off says nothing about anyone', async () => {
    world.answer = hang;
    world.answers.came(7, 100, 20, startMs);
    const done = world.sender.perform(LIVE);
    await world.clock.advance(30);
    world.stop.abort(new Error('the uplink stops'));
    await world.clock.advance(0);
    await done;
    const heard = world.heard().slice(-3);
    expect(heard[1]).toMatchObject({ event: 'uplink.posted', meaning: 'aborted', tookMs: 20 });
    expect([heard[0], heard[2], world.clock.waiting]).toEqual(['hook: aborted', { kind: 'broken off' }, 0]);
    expect(world.answers.limitMs(7, 100, startMs)).toBe(15_000);
  });

  it.each<[string, () => Promise<ValuesAnswer>, number]>([
    ['that is answered, whatever the answer', async () => ({ ...TAKEN, status: 500 }), 18_000],
    ['whose connection breaks', () => Promise.reject(Object.assign(new Error('x'), { code: 'ECONNRESET' })), 15_000],
    ['whose answer ran out', () => Promise.reject(Object.assign(new Error('x'), { code: 'platform.timeout' })), 30_000],
  ])('%s shows how long answers take', async (_name, answer, limitMs) => {
    world.answers.came(7, 100, 20, startMs);
    world.answer = async () => {
      await world.clock.sleep(9_000);
      return answer();
    };
    await world.perform(LIVE, 60_000);
    expect(world.answers.limitMs(7, 100, startMs)).toBe(limitMs);
  });

  it('is taken where the platform says so with a status that a reload has named', async () => {
    world.given = [BATCH, BATCH];
    const header = (name: string) => (name === 'content-length' ? '0' : undefined);
    world.answer = async () => ({ ...TAKEN, status: 200, header });
    const meaning = async () => (await world.perform(LIVE)).find((one) => String(one).startsWith('hook'));
    expect(await meaning()).toBe('hook: not-understood');
    world.options.success = [200];
    expect(await meaning()).toBe('hook: delivered');
  });

  it('needs nobody who counts it', async () => {
    world = new SendingWorld({});
    expect(kinds(await world.perform(LIVE)).at(-1)).toBe('answered');
  });
});
