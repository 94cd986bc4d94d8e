import { expect, it } from 'vitest';
import type { QuarantinedValues } from '../../../src/buffer/operator/requeueing.ts';
import { heldFeed } from '../../../src/ops/live/feeds.ts';

it('the quarantine feed sends changed rows even if the count is unchanged', async () => {
  const row = { series: 7, count: 1, status: 400, message: 'no', atMs: 1, timeMs: [1], value: [666] };
  let rows: unknown[] = [];
  let count = 0;
  const feed = heldFeed({
    quarantined: () => count,
    show: async () => rows as QuarantinedValues[],
    nameOf: (series) => `tag ${series}`,
  });
  const told = async () => ((await feed.next()).join('').match(/"name":"tag 7"/g) ?? []).length;
  await feed.begin(undefined);
  await feed.next();
  count = 1;
  expect(await told()).toBe(0);
  rows = [row];
  expect(await told()).toBe(1);
  expect(await feed.next()).toEqual([]);
  rows = [];
  count = 0;
  expect((await feed.next()).join('')).toContain('"quarantine":[]');
});
