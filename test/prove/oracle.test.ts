import { beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { FarEnd } from './far-end.ts';
import { type Claim, Oracle, summed } from './oracle.ts';
import { mixed } from './schedule.ts';

let sandbox: Sandbox;
let oracle: Oracle;
beforeEach(() => {
  sandbox = new Sandbox();
  oracle = new Oracle();
});

const claim = (timestampMs: number, value: number, status?: 'good' | 'bad'): Claim => ({
  way: 'http',
  asset: 881,
  key: 'a',
  timestampMs,
  value,
  status,
});

/** As the platform took it, in one post. */
function arrives(...claims: Claim[]): void {
  const points = claims.map(({ timestampMs, value, status }) => ({ timestampMs, value, status, stamped: false }));
  sandbox.values.record(881, [{ key: 'a', group: undefined, unit: undefined, points }]);
}

function give(...claims: Claim[]): void {
  for (const one of claims) {
    oracle.offer(one);
    oracle.acknowledge(one);
  }
}

const judge = () => summed(oracle.judge(sandbox).values());

describe('the judge', () => {
  it('finds nothing where all that was acknowledged is there as it was given', () => {
    give(claim(1, 0.1), claim(2, -0, 'bad'));
    oracle.offer(claim(3, 7));
    arrives(claim(1, 0.1), claim(2, -0, 'bad'));
    expect(judge()).toEqual({
      offered: 3,
      acknowledged: 2,
      delivered: 2,
      missing: 0,
      invented: 0,
      different: 0,
      repeated: 0,
    });
  });

  it.each([
    ['a value that is not there', 'missing', () => give(claim(1, 1))],
    ['a value that nobody gave', 'invented', () => arrives(claim(1, 1))],
    [
      'another value, if only by its sign of zero',
      'different',
      () => {
        give(claim(1, 0));
        arrives(claim(1, -0));
      },
    ],
    [
      'another status, or none',
      'different',
      () => {
        give(claim(1, 1, 'good'));
        arrives(claim(1, 1));
      },
    ],
    [
      'another time',
      'invented',
      () => {
        oracle.offer(claim(1, 1));
        arrives(claim(2, 1));
      },
    ],
    [
      'a value that came twice',
      'repeated',
      () => {
        give(claim(1, 1));
        arrives(claim(1, 1));
        arrives(claim(1, 1));
      },
    ],
  ] as const)('finds %s', (_what, count, happens) => {
    happens();
    expect(judge()[count]).toBe(1);
  });

  it('begins anew, and knows what a crash repeats of before', () => {
    give(claim(1, 1));
    arrives(claim(1, 1));
    judge();
    arrives(claim(1, 1));
    expect(judge()).toMatchObject({ invented: 0, repeated: 1 });
    arrives(claim(1, 1));
    expect(judge()).toMatchObject({ invented: 1 });
  });

  it('finds of a counter that fewer are there than were counted, one twice, and one that it never said', () => {
    arrives(claim(1, 1), claim(2, 2), claim(3, 2), claim(4, 9));
    oracle.counted('modbus', 881, 'a', 4, [1, 2, 3, 4]);
    expect(judge()).toMatchObject({ acknowledged: 4, delivered: 3, missing: 1, invented: 2 });
  });

  it('finds of a counter that one is not there which was acknowledged, whatever else is', () => {
    arrives(claim(1, 1), claim(3, 3), claim(4, 4));
    oracle.counted('opcua', 881, 'a', new Set([1, 2]), [1, 2, 3, 4]);
    expect(judge()).toMatchObject({ acknowledged: 2, delivered: 3, missing: 1, invented: 0 });
  });
});

describe('how much may come again', () => {
  it('is nothing without a fault, a post for an answer that was lost, and since the last commit for a crash', () => {
    const far = new FarEnd(sandbox, 100, 4);
    arrives(claim(1, 1), claim(2, 2));
    expect(far.allowed).toBe(0);
    far.spoiled();
    expect(far.allowed).toBe(100);
    far.crashed();
    expect(far.allowed).toBe(100 + 2 + 400);
    // Long after those were taken something was committed.
    far.committed(performance.now() + 10_000);
    far.crashed();
    expect(far.allowed).toBe(100 + 2 + 400 + 400);
  });
});

describe('a schedule', () => {
  const faults = {
    kill: { slot: 'process', holdMs: [0, 0] },
    hang: { slot: 'platform', holdMs: [500, 2_000] },
    reset: { slot: 'platform', holdMs: [500, 2_000] },
  } as const;

  it('is the same for the same seed, and another for another', () => {
    expect(mixed(7, 30_000, 12, faults)).toEqual(mixed(7, 30_000, 12, faults));
    expect(mixed(8, 30_000, 12, faults)).not.toEqual(mixed(7, 30_000, 12, faults));
  });

  it.each([1, 2, 3])('holds one of a slot at a time and ends in time, seed %i', (seed) => {
    const schedule = mixed(seed, 30_000, 12, faults);
    expect(new Set(schedule.map(({ fault }) => fault)).size).toBe(3);
    const platform = schedule.filter(({ fault }) => fault !== 'kill');
    for (const [i, { atMs, forMs }] of platform.entries()) {
      expect(atMs + forMs).toBeLessThanOrEqual(platform[i + 1]?.atMs ?? 30_000);
    }
  });
});
