/** Values keep asset and key although the number of a series without values is reused after a restart. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { storeOptions } from '../../../src/agent/pace.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { freshFolder } from '../../fresh-folder.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { bufferSettings, openFlow } from '../doubles/open-flow.ts';

const folder = freshFolder('reused-number');
let flow: BufferFlow;

beforeEach(async () => {
  flow = await openFlow(folder.path, { bufferFull: 'refuse-new' });
});
afterEach(async () => {
  await flow.stop();
});

function append(asset: number, key: string, value: number): Promise<void> {
  const columns = new ValueColumns();
  columns.add(flow.catalogue.idOf(asset, key, undefined, undefined), Date.UTC(2026, 10, 21), value, 1);
  return commitColumns(flow.committer, columns);
}

async function setMaxBytes(maxBytes: number): Promise<void> {
  const options = storeOptions({ ...bufferSettings(folder.path), bufferFull: 'refuse-new' });
  await flow.values.configure({ ...options, bounds: { ...options.bounds, maxBytes } });
}

async function deliver(asset: number): Promise<void> {
  const batch = await flow.outgoing.take({ asset, lane: 'live', maxValues: 10, maxBytes: 10_000 });
  await batch!.settle(batch!.whole);
  await flow.committer.flush();
}

async function restart(): Promise<void> {
  await flow.stop();
  flow = await openFlow(folder.path, { bufferFull: 'refuse-new' });
}

async function stored() {
  const { columns } = await flow.operator.exportPage(await flow.operator.beginExport({}));
  return Array.from(columns.value, (value, i) => {
    const { asset, key } = flow.catalogue.get(columns.series[i]!)!;
    return { asset, key, value };
  });
}

describe('reused series number', () => {
  it.each([0, 1, 2])('identifies the new series after %i rejected commits and another restart', async (refusals) => {
    await setMaxBytes(1);
    for (let i = 0; i < refusals; i++) {
      await expect(append(1, 'level', 5)).rejects.toMatchObject({ code: 'buffer.full' });
    }
    await setMaxBytes(0);
    await append(1, 'level', 5);
    await deliver(1);
    await restart();
    await append(2, 'flow', 7);
    expect(flow.catalogue.find(2, 'flow', undefined, undefined)).toBe(1);
    await restart();
    expect(await stored()).toEqual([{ asset: 2, key: 'flow', value: 7 }]);
  });

  it('is not written by a rejected commit', async () => {
    await setMaxBytes(1);
    await expect(append(1, 'level', 5)).rejects.toMatchObject({ code: 'buffer.full' });
    expect(await flow.operator.list({ after: 0, limit: 10 })).toEqual([]);
    await setMaxBytes(0);
    await append(1, 'level', 6);
    expect(await stored()).toEqual([{ asset: 1, key: 'level', value: 6 }]);
  });
});
