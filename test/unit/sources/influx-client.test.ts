import { gzipSync } from 'node:zlib';
import { InfluxDB, Point } from '@influxdata/influxdb-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { HttpPush, type PushRules } from '../../../src/sources/push/http-push.ts';
import { type IntakeBench, makeIntakeBench, storeFault, until } from './sink-double.ts';

/** Official InfluxDB client. */
let bench: IntakeBench;
let push: HttpPush;
let url = '';

async function listen(rules: PushRules): Promise<void> {
  push = new HttpPush({
    listen: { host: '127.0.0.1', port: 0 },
    rules,
    intake: bench.intake,
    clock: bench.clock,
    log: silentLogger(),
  });
  const at = await push.start();
  url = `http://127.0.0.1:${'port' in at ? at.port : 0}`;
}

beforeEach(() => {
  bench = makeIntakeBench();
});
afterEach(() => push.stop());

const AT = new Date('2026-11-21T01:02:03.004Z');
const api = (options = {}) =>
  new InfluxDB({ url, token: 'the-token' }).getWriteApi('any-org', 'any-bucket', 'ms', {
    maxRetries: 0,
    flushInterval: 0,
    ...options,
  });

describe('InfluxDB client', () => {
  it('writes points in every precision, compressed or uncompressed, with a verified token', async () => {
    await listen({ token: 'the-token' });
    for (const gzipThreshold of [1, 1_000_000]) {
      const writing = api({ gzipThreshold });
      writing.useDefaultTags({ host: 'a b,c=d' });
      writing.writePoint(
        new Point('FT-101').tag('line', 'é').floatField('flow', 12.5).intField('temperature', -3).timestamp(AT),
      );
      await writing.close();
    }
    const ns = new InfluxDB({ url, token: 'the-token' }).getWriteApi('o', 'b');
    ns.writePoint(new Point('GW-01').floatField('load', 0.25).timestamp(`${AT.getTime()}123456`));
    await ns.close();
    expect(bench.sink.stored.map(({ address, timeMs, value }) => [address, timeMs - AT.getTime(), value])).toEqual([
      ['881/process/flow/#12', 0, 12.5],
      ['881//temperature/degree_celsius', 0, -3],
      ['881/process/flow/#12', 0, 12.5],
      ['881//temperature/degree_celsius', 0, -3],
      ['900//load/', 0, 0.25],
    ]);
    push.setRules({ token: 'another' });
    const refused = api();
    refused.writePoint(new Point('FT-101').floatField('flow', 1));
    await expect(refused.close()).rejects.toMatchObject({ statusCode: 401 });
  });

  it('receives the problems in a batch, whose valid points are stored on request', async () => {
    await listen({ token: undefined, lines: { tagFrom: 'device' } });
    const points = (writing: ReturnType<typeof api>) => {
      writing.writePoint(new Point('modbus').tag('device', 'FT-101').floatField('flow', 1).timestamp(AT));
      writing.writePoint(new Point('cpu').tag('host', 'gw').floatField('idle', 99).timestamp(AT));
      writing.writePoint(new Point('modbus').tag('device', 'GW-01').floatField('load', 2).timestamp(AT));
      return writing.close();
    };
    await expect(points(api())).rejects.toMatchObject({ statusCode: 422, body: expect.stringContaining('device') });
    expect(bench.sink.stored).toEqual([]);
    push.setRules({ token: undefined, lines: { tagFrom: 'device', partial: true } });
    // The client reports a partial write as an error and does not repeat the batch.
    await expect(points(api({ maxRetries: 3 }))).rejects.toMatchObject({ statusCode: 200 });
    expect(bench.sink.stored.map(({ value }) => value)).toEqual([1, 2]);
  });

  it('retries rejected points until the store accepts them', async () => {
    await listen({ token: undefined });
    bench.sink.fault = storeFault('buffer.full', 10);
    const failed = Promise.withResolvers<void>();
    const writing = api({
      maxRetries: 5,
      writeFailed: () => {
        failed.resolve();
      },
    });
    for (let i = 0; i < 5; i++) {
      writing.writePoint(new Point('FT-101').floatField('flow', i).timestamp(new Date(AT.getTime() + i)));
    }
    const flushed = writing.flush().catch(() => {});
    await failed.promise;
    bench.sink.fault = undefined;
    await flushed;
    // The client retries after the delay in `Retry-After`.
    await until(() => bench.sink.stored.length > 0);
    await writing.close();
    expect(bench.sink.stored.map(({ value }) => value)).toEqual([0, 1, 2, 3, 4]);
  });
});

describe('Telegraf output', () => {
  // Telegraf serializer: tags sorted by name, integers with i, uptime as a string.
  const BATCH = `${[
    'modbus,device=FT-101,host=gw,name=line\\ 1,slave_id=1,type=holding_register flow=12.5,temperature=21i 1795219200000000000',
    'cpu,cpu=cpu-total,host=gw usage_idle=98.23943661971831,usage_user=1.2323943661971832 1795219200000000000',
    'system,host=gw uptime=1893i,uptime_format="  0:31",load1=0.08 1795219200000000000',
    'modbus,device=GW-01,host=gw load=0.25 1795219201000000000',
  ].join('\n')}\n`;
  const post = (path: string) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      body: gzipSync(BATCH),
      headers: {
        'User-Agent': 'Telegraf',
        'Content-Type': 'text/plain; charset=utf-8',
        'Content-Encoding': 'gzip',
        Authorization: 'Token the-token',
      },
    });

  it('is stored in both dialects if its tag is configured, and otherwise reported', async () => {
    await listen({ token: 'the-token', lines: { tagFrom: 'device', partial: true } });
    for (const path of ['/api/v2/write?bucket=any&org=any', '/write?db=telegraf&consistency=any']) {
      const answer = await post(path);
      const body = (await answer.json()) as { accepted: number; refused: number; error?: string };
      expect([answer.status, body.accepted, body.refused]).toEqual([200, 3, 5]);
      expect(body.error ?? 'partial write').toContain('partial write');
    }
    const once = bench.sink.stored.slice(0, 3).map(({ address, timeMs, value }) => `${address} ${timeMs} ${value}`);
    expect(once).toEqual([
      '881/process/flow/#12 1795219200000 12.5',
      '881//temperature/degree_celsius 1795219200000 21',
      '900//load/ 1795219201000 0.25',
    ]);
    push.setRules({ token: 'the-token', lines: { tagFrom: 'device' } });
    expect((await post('/api/v2/write')).status).toBe(422);
    expect(bench.sink.stored).toHaveLength(6);
  });
});
