import { describe, expect, it } from 'vitest';
import { accessEvent, buildPlant, tag } from './plant.ts';

const MINUTE = 60_000;

describe('due hold', () => {
  it('keeps its position and records no probe until the post is sent', async () => {
    const { holds, clock } = await buildPlant();
    for (const asset of [881, 882, 900]) {
      await holds.refused(asset, 403);
      await clock.advance(1_000);
    }
    await clock.advance(2 * MINUTE);
    const assets = () => holds.dueProbes(clock.monotonicMs()).map((probe) => probe.asset);
    for (let look = 0; look < 5; look++) {
      expect(assets()).toEqual([881, 882, 900]);
      await clock.advance(MINUTE);
    }
    expect(holds.list().map((hold) => hold.last_probe)).toEqual([null, null, null]);
    expect(holds.list()[0]!.next_probe_in_seconds).toBe(0);
    holds.probed(holds.dueProbes(clock.monotonicMs())[1]!);
    expect(assets()).toEqual([881, 900]);
    const triedAt = new Date(clock.wallMs()).toISOString();
    expect(holds.list().map((hold) => hold.last_probe)).toEqual([null, triedAt, null]);
    expect(holds.nextProbeAtMs()).toBeLessThanOrEqual(clock.monotonicMs());
  });

  it('becomes due again after other holds if the response is unrelated to access', async () => {
    const { holds, clock } = await buildPlant();
    for (const asset of [881, 882]) await holds.refused(asset, 403);
    await clock.advance(2 * MINUTE);
    const first = holds.dueProbes(clock.monotonicMs())[0]!;
    holds.probed(first);
    await clock.advance(20_000);
    holds.unanswered(first);
    expect(holds.dueProbes(clock.monotonicMs()).map((probe) => probe.asset)).toEqual([882, 881]);
    expect(holds.list()[0]!.last_probe).toBeNull();
    // An accepted post that is not a probe does not release a hold caused by an event.
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(true);
  });

  it('rotates among the assets of its instrumentation', async () => {
    const tags = [tag('A', 881, 4711, 'flow'), tag('B', 882, 4711, 'pressure')];
    const { holds, clock } = await buildPlant({ tags });
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    const firsts: number[] = [];
    for (let round = 0; round < 3; round++) {
      await clock.advance(15 * MINUTE);
      const due = holds.dueProbes(clock.monotonicMs());
      expect(due.map((probe) => probe.asset).sort()).toEqual([881, 882]);
      holds.probed(due[0]!);
      expect(holds.dueProbes(clock.monotonicMs())).toEqual([]);
      firsts.push(due[0]!.asset);
    }
    expect(firsts).toEqual([881, 882, 881]);
  });

  it.each(['refused', 'disappeared'])(
    'ends if the %s asset has no values and no tag, and does not reappear after a restart',
    async (how) => {
      const { holds, clock, restart } = await buildPlant({ tags: [tag('A', 881, undefined, 'flow')] });
      for (const asset of [881, 905]) {
        if (how === 'refused') await holds.refused(asset, 404);
        else await holds.apply(accessEvent('asset_disappeared', asset, 10));
      }
      await clock.advance(15 * MINUTE);
      for (const probe of holds.dueProbes(clock.monotonicMs())) await holds.foundNothing(probe);
      expect(holds.list().map(({ id }) => id)).toEqual([881]);
      expect((await restart()).list().map(({ id }) => id)).toEqual([881]);
      await holds.apply(accessEvent('asset_disappeared', 905, 20));
      expect(holds.isHeld(905)).toBe(true);
    },
  );

  it('on an instrumentation remains while another of its assets may have values', async () => {
    const { holds, clock, series } = await buildPlant({ tags: [] });
    const flow = { key: 'flow', group: undefined, instrumentation: 4711 };
    series.list.push({ id: 8, asset: 881, ...flow }, { id: 9, asset: 882, ...flow });
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    await clock.advance(15 * MINUTE);
    for (const probe of holds.dueProbes(clock.monotonicMs())) await holds.foundNothing(probe);
    expect(holds.list().map(({ id }) => id)).toEqual([4711]);
    series.list.pop();
    for (const probe of holds.dueProbes(clock.monotonicMs())) await holds.foundNothing(probe);
    expect(holds.list()).toEqual([]);
  });
});
