import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';

/**
 * Platform that accepts values by instrumentation. A sandbox asset represents each instrumentation, so that the ledger
 * shows the values per address.
 */
const BY_INSTRUMENTATION = '/v1/assets/{instrumentation_id}/values';
const tags = (both: string) => `tags:
  FT-1: { asset: 900, instrumentation: 881, values: { ${both}only1: {} } }
  FT-2: { asset: 900, instrumentation: 882, values: { ${both}only2: {} } }
`;
const TAGS = tags('flow: {}, ');

let sandbox: Sandbox;
let agent: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

async function start(valuesPath: string, files = TAGS): Promise<void> {
  agent = new GatewayProcess(sandbox.url, { tags: files, env: { VALUES_PATH: valuesPath } });
  await agent.start();
}

async function reload(valuesPath: string): Promise<void> {
  const before = agent.logged('config.reloaded').length;
  agent.write(sandbox.url, { tags: TAGS, env: { VALUES_PATH: valuesPath } });
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length > before, 'the files were read again');
}

async function push(...values: [tag: string, key: string, value: number][]): Promise<void> {
  const body = values.map(([tag, key, value]) => ({ tag, key, value, timestamp: 1_700_000_000_000 + value }));
  expect((await agent.push(body)).status).toBe(204);
}

const stored = (instrumentation: number, key: string) =>
  sandbox.values.list(instrumentation, key).map(({ value }) => value);
const total = (count: number) => () => sandbox.values.counts().stored === count;

describe('VALUES_PATH with an instrumentation ID', () => {
  it('posts values for two tags of an asset to separate paths, even with the same key', async () => {
    await start(BY_INSTRUMENTATION);
    await push(['FT-1', 'flow', 1], ['FT-2', 'flow', 2], ['FT-1', 'flow', 3], ['FT-2', 'only2', 4]);
    await agent.until(total(4), 'all are on the platform');
    expect([stored(881, 'flow'), stored(882, 'flow'), stored(882, 'only2')]).toEqual([[1, 3], [2], [4]]);
    const direct = await agent.push([{ asset: 900, key: 'flow', value: 5 }]);
    expect(JSON.parse(direct.text)).toMatchObject({ problems: [{ field: 'asset' }] });
    await agent.push([{ asset: 900, key: 'only1', value: 6, timestamp: 1_700_000_000_006 }]);
    await agent.until(
      () => stored(881, 'only1').length === 1,
      'the value of a key that only one tag lists is delivered',
    );
  });

  it('holds only the rejected instrumentation, not others on the same asset', async () => {
    sandbox.faults.add({ method: 'POST', path: '/v1/assets/881/*', status: 404 });
    await start(BY_INSTRUMENTATION);
    await push(['FT-1', 'flow', 1], ['FT-2', 'flow', 2]);
    await agent.until(() => agent.logged('access.held').length === 1, 'it is held');
    expect(agent.logged('access.held')).toMatchObject([{ instrumentation: 881, cause: 'answered_404' }]);
    for (let value = 3; value < 8; value++) {
      await push(['FT-1', 'flow', value], ['FT-2', 'flow', value]);
      await agent.until(
        () => stored(882, 'flow').length === value - 1,
        'values of the other instrumentation are delivered',
      );
    }
    expect(agent.logged('access.held')).toHaveLength(1);
    const { holds } = (await agent.status()) as { holds: object[] };
    expect(holds).toMatchObject([{ kind: 'instrumentation', id: 881, cause: 'answered_404', tags: ['FT-1'] }]);
  });

  it('delivers values to the correct instrumentation after an incorrect path is fixed', async () => {
    await start('/v1/assetz/{instrumentation_id}/values');
    await push(['FT-1', 'flow', 1], ['FT-2', 'flow', 2]);
    await agent.until(() => agent.logged('access.held').length > 0, 'the wrong path is rejected');
    await reload(BY_INSTRUMENTATION);
    await agent.until(total(2), 'each value is at its own address');
    expect([stored(881, 'flow'), stored(882, 'flow')]).toEqual([[1], [2]]);
  });

  it('delivers earlier values once a tag is added for them, and reports the others as pending', async () => {
    sandbox.faults.add({ method: 'POST', path: '/v1/assets/900/*', status: 503 });
    await start('/v1/assets/{asset_id}/values', tags(''));
    await push(['FT-1', 'only1', 1], ['FT-2', 'only2', 2]);
    await agent.push([{ asset: 900, key: 'other', value: 3 }]);
    await agent.until(() => agent.logged('uplink.away').length > 0, 'the previous address receives no values');
    await reload(BY_INSTRUMENTATION);
    await agent.until(total(2), 'the value that only one tag lists has arrived');
    expect([stored(881, 'only1'), stored(882, 'only2')]).toEqual([[1], [2]]);
    await agent.until(() => agent.logged('uplink.no_address').length > 0, 'the other address is reported');
    const { uplink } = (await agent.status()) as { uplink: { waiting_series: object[] } };
    expect(uplink.waiting_series).toMatchObject([{ asset: 900, status: 0 }]);
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 1, 'the other values are settled');
  });
});
