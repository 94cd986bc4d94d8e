/**
 * Process that opens buffers like the agent, accepts new values, posts everything, and writes the results to
 * `said.json` in each folder. The layer injects faults.
 *
 * argv: orders file of the layer, orders, phase in which they apply (`start`, `running`), folders.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { openFlow, telling } from '../../unit/doubles/open-flow.ts';

const [file, orders, when, ...folders] = process.argv.slice(2) as [string, string, string, ...string[]];

function takeFresh(flow: BufferFlow): Promise<void> {
  const columns = new ValueColumns();
  columns.add(flow.catalogue.idOf(1, 'k0', undefined, undefined), 9_000_000_000_000, 10_000_000, 0);
  columns.add(flow.catalogue.idOf(99, 'new', undefined, undefined), 9_000_000_000_000, 10_000_001, 0);
  return commitColumns(flow.committer, columns);
}

async function postAll(flow: BufferFlow): Promise<number[]> {
  const values: number[] = [];
  for (let quiet = 0; quiet < 3 || flow.facts.isCarrying; quiet++) {
    await flow.committer.flush();
    for (const asset of new Set([...flow.catalogue.all()].map((series) => series.asset))) {
      for (const lane of ['backlog', 'live'] as const) {
        const batch = await flow.outgoing.take({ asset, lane, maxValues: 5000, maxBytes: 480_000 });
        if (!batch) continue;
        const body = JSON.parse(new TextDecoder().decode(batch.whole.body)) as {
          values: { data: { value: number }[] }[];
        };
        values.push(...body.values.flatMap((key) => key.data.map((point) => Math.floor(point.value))));
        await batch.settle(batch.whole);
        quiet = 0;
      }
    }
    flow.committer.update(await flow.values.maintain({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
  }
  return values;
}

for (const folder of folders) {
  writeFileSync(file, when === 'start' ? orders : '\n');
  const events: object[] = [];
  const said: { folder: string; values?: number[]; quarantined?: number; failed?: string; events: object[] } = {
    folder,
    events,
  };
  let flow: BufferFlow | undefined;
  try {
    flow = await openFlow(folder, {}, { log: telling((fields: object) => events.push(fields)) });
    writeFileSync(file, orders);
    await takeFresh(flow);
    said.values = await postAll(flow);
    said.quarantined = (await flow.operator.countQuarantine()).series.reduce((sum, { count }) => sum + count, 0);
  } catch (error) {
    said.failed = String(error);
  }
  await flow?.stop().catch((error: unknown) => {
    said.failed ??= String(error);
  });
  writeFileSync(join(folder, 'said.json'), JSON.stringify(said));
}
