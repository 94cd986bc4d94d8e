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

/** Delivers the values in one post. */
function arrives(...claims: Claim[]): void {
  const points = claims.map(({ timestampMs, value, status }) => ({ timestampMs, value, status, stamped: false }));
  sandbox.values.record(881, [{ key: 'a', group: undefined, unit: undefined, points }]);
}

function acknowledge(...claims: Claim[]): void {
  for (const one of claims) {
    oracle.offer(one);
    oracle.acknowledge(one);
  }
}

const judge = () => summed(oracle.judge(sandbox).values());

describe('oracle', () => {
  it('reports nothing if all acknowledged values are delivered unchanged', () => {
    acknowledge(claim(1, 0.1), claim(2, -0, 'bad'));
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
    ['a missing value', 'missing', () => acknowledge(claim(1, 1))],
    ['a value that was never offered', 'invented', () => arrives(claim(1, 1))],
    [
      'a different value, even if only the sign of zero differs',
      'different',
      () => {
        acknowledge(claim(1, 0));
        arrives(claim(1, -0));
      },
    ],
    [
      'a different or missing status',
      'different',
      () => {
        acknowledge(claim(1, 1, 'good'));
        arrives(claim(1, 1));
      },
    ],
    [
      'a different timestamp',
      'invented',
      () => {
        oracle.offer(claim(1, 1));
        arrives(claim(2, 1));
      },
    ],
    [
      'a duplicate value',
      'repeated',
      () => {
        acknowledge(claim(1, 1));
        arrives(claim(1, 1));
        arrives(claim(1, 1));
      },
    ],
  ] as const)('reports %s', (_what, count, happens) => {
    happens();
    expect(judge()[count]).toBe(1);
  });

  it('counts values from the previous round as repeated after a new round starts', () => {
    acknowledge(claim(1, 1));
    arrives(claim(1, 1));
    judge();
    arrives(claim(1, 1));
    expect(judge()).toMatchObject({ invented: 0, repeated: 1 });
    arrives(claim(1, 1));
    expect(judge()).toMatchObject({ invented: 1 });
  });

  it('reports an incomplete counter, a duplicate, and an invented value', () => {
    arrives(claim(1, 1), claim(2, 2), claim(3, 2), claim(4, 9));
    oracle.counted('modbus', 881, 'a', 4, [1, 2, 3, 4]);
    expect(judge()).toMatchObject({ acknowledged: 4, delivered: 3, missing: 1, invented: 2 });
  });

  it('reports a missing acknowledged counter value, regardless of other values', () => {
    arrives(claim(1, 1), claim(3, 3), claim(4, 4));
    oracle.counted('opcua', 881, 'a', new Set([1, 2]), [1, 2, 3, 4]);
    expect(judge()).toMatchObject({ acknowledged: 2, delivered: 3, missing: 1, invented: 0 });
  });
});

describe('limit for repeated values', () => {
  it('is zero without a fault, one post after a lost response, and everything since the previous commit after a crash', () => {
    const far = new FarEnd(sandbox, 100, 4);
    arrives(claim(1, 1), claim(2, 2));
    expect(far.allowed).toBe(0);
    far.responseLost();
    expect(far.allowed).toBe(100);
    far.crashed();
    expect(far.allowed).toBe(100 + 2 + 400);
    // A commit occurred long after the earlier values were accepted.
    far.committed(performance.now() + 10_000);
    far.crashed();
    expect(far.allowed).toBe(100 + 2 + 400 + 400);
  });
});

describe('fault schedule', () => {
  const faults = {
    kill: { slot: 'process', holdMs: [0, 0] },
    hang: { slot: 'platform', holdMs: [500, 2_000] },
    reset: { slot: 'platform', holdMs: [500, 2_000] },
  } as const;

  it('is the same for the same seed, and differs between seeds', () => {
    expect(mixed(7, 30_000, 12, faults)).toEqual(mixed(7, 30_000, 12, faults));
    expect(mixed(8, 30_000, 12, faults)).not.toEqual(mixed(7, 30_000, 12, faults));
  });

  it.each([1, 2, 3])('schedules at most one concurrent fault per slot and ends on time, seed %i', (seed) => {
    const schedule = mixed(seed, 30_000, 12, faults);
    expect(new Set(schedule.map(({ fault }) => fault)).size).toBe(3);
    const platform = schedule.filter(({ fault }) => fault !== 'kill');
    for (const [i, { atMs, forMs }] of platform.entries()) {
      expect(atMs + forMs).toBeLessThanOrEqual(platform[i + 1]?.atMs ?? 30_000);
    }
  });
});
