import { describe, expect, it } from 'vitest';
import type { ValueStatus } from '../../../src/contract/values.ts';
import type { ValueWatch } from '../../../src/sources/intake/gate.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { makeIntakeBench, originOf, tagOf, until } from './sink-double.ts';

/** Records the values of every series. */
class Recorder implements ValueWatch {
  readonly isIdle = false;
  readonly seen: [value: number, timestampMs: number, status: ValueStatus | undefined][] = [];
  pending: Promise<void> | undefined;

  uses(): boolean {
    return true;
  }

  observe(_series: number, value: number, timestampMs: number, status: ValueStatus | undefined) {
    this.seen.push([value, timestampMs, status]);
    return this.pending;
  }
}

function bench() {
  const shaping = { scale: 0.1, deadband: { units: 5 }, onFailure: 'bad' } as const;
  const tags = new Map([
    ['T', tagOf('T', 1, [{ key: 'v', from: originOf('host', 's', true, shaping) }, { key: 'pushed' }])],
  ]);
  const watch = new Recorder();
  const parts = makeIntakeBench(tags, watch);
  const [point] = pointsOf(tags, 's', parts.intake);
  return { ...parts, watch, gate: parts.gateOf('s'), point: point! };
}

describe('watched values', () => {
  it('from a source are scaled, and include changes within the dead band', async () => {
    const { gate, point, watch, sink, clock } = bench();
    await gate.write([
      { point, raw: 10, timeMs: 1_000, quality: 'good' },
      { point, raw: 20, timeMs: 2_000 },
      { point, raw: 30 },
    ]);
    expect(watch.seen).toEqual([
      [1, 1_000, 'good'],
      [2, 2_000, undefined],
      [3, clock.wallMs(), undefined],
    ]);
    expect(sink.stored.map(({ value }) => value)).toEqual([1]);
  });

  it('from a source include failures as values with the status bad', () => {
    const { gate, point, watch, clock } = bench();
    const failure = { point, failure: undefined };
    gate.record([failure, { point, raw: 10, timeMs: 1_000 }, failure]);
    expect(watch.seen).toEqual([
      [1, 1_000, undefined],
      [1, clock.wallMs(), 'bad'],
    ]);
  });

  it('are confirmed only after their transitions are stored', async () => {
    const { gate, point, watch, sink, intake } = bench();
    const { promise, resolve } = Promise.withResolvers<void>();
    watch.pending = promise;
    let confirmed = 0;
    const count = () => confirmed++;
    const written = gate.write([{ point, raw: 10 }]).then(count);
    const draft = intake.draft();
    draft.add(draft.slotOfTag('T', 'pushed')!, 7, 1_000, 0);
    const submitted = intake.submit(draft, 'push').then(count);
    await new Promise((done) => setImmediate(done));
    expect([watch.seen.map(([value]) => value), confirmed]).toEqual([[1, 7], 0]);
    resolve();
    await Promise.all([written, submitted]);
    expect(sink.stored.map(({ value }) => value).sort()).toEqual([1, 7]);
  });

  it('are not confirmed if their transitions cannot be stored in time or before the source stops', async () => {
    const { gate, point, watch, sink, intake, clock } = bench();
    watch.pending = new Promise(() => {});
    const confirmed = gate.write([{ point, raw: 10 }]);
    const draft = intake.draft();
    draft.add(draft.slotOfTag('T', 'pushed')!, 7, 1_000, 0);
    const submitted = expect(intake.submit(draft, 'push')).rejects.toMatchObject({ code: 'buffer.busy' });
    await until(() => sink.stored.length === 2);
    await clock.advance(5_000);
    await submitted;
    const stopped = gate.stop();
    const rejected = expect(confirmed).rejects.toMatchObject({ code: 'source.stopped' });
    await clock.advance(5_000);
    await Promise.all([stopped, rejected]);
  });
});
