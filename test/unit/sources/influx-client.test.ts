import { gzipSync } from 'node:zlib';
import { InfluxDB, Point } from '@influxdata/influxdb-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PushRules } from '../../../src/sources/push/http-push.ts';
import { PushListener } from './push-listener.ts';
import { storeFault, until } from './sink-double.ts';

let listener: PushListener;
let url = '';

async function listen(rules: PushRules): Promise<void> {
  await listener.listen(rules);
  url = `http://127.0.0.1:${listener.port}`;
}

beforeEach(() => {
  listener = new PushListener();
});
afterEach(() => listener.dispose());

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
    expect(
      listener.bench.sink.stored.map(({ address, timeMs, value }) => [address, timeMs - AT.getTime(), value]),
    ).toEqual([
      ['881/process/flow/#12', 0, 12.5],
      ['881//temperature/degree_celsius', 0, -3],
      ['881/process/flow/#12', 0, 12.5],
      ['881//temperature/degree_celsius', 0, -3],
      ['900//load/', 0, 0.25],
    ]);
    listener.push.setRules({ token: 'another' });
    const refused = api();
    refused.writePoint(new Point('FT-101').floatField('flow', 1));
    await expect(refused.close()).rejects.toMatchObject({ statusCode: 401 });
  });

  it('receives the rejected points of a batch, and does not resend it', async () => {
    await listen({ token: undefined, lines: { tagFrom: 'device' } });
    const writing = api({ maxRetries: 3 });
    writing.writePoint(new Point('modbus').tag('device', 'FT-101').floatField('flow', 1).timestamp(AT));
    writing.writePoint(new Point('cpu').tag('host', 'gw').floatField('idle', 99).timestamp(AT));
    writing.writePoint(new Point('modbus').tag('device', 'GW-01').floatField('load', 2).timestamp(AT));
    const body = expect.stringMatching(/partial write.*line 2.*has no tag.*device.*dropped=1/);
    await expect(writing.close()).rejects.toMatchObject({ statusCode: 400, body });
    expect(listener.stored).toEqual([1, 2]);
  });

  it('retries rejected points until the store accepts them', async () => {
    await listen({ token: undefined });
    listener.bench.sink.fault = storeFault('buffer.busy');
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
    listener.bench.sink.fault = undefined;
    await flushed;
    // The client retries after the delay in `Retry-After`.
    await until(() => listener.bench.sink.stored.length > 0);
    await writing.close();
    expect(listener.stored).toEqual([0, 1, 2, 3, 4]);
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
    listener.send(path, gzipSync(BATCH), {
      'Content-Type': 'text/plain; charset=utf-8',
      'Content-Encoding': 'gzip',
      Authorization: 'Token the-token',
    });

  it('is accepted in part in both dialects, with a response that makes Telegraf drop the rejected lines', async () => {
    await listen({ token: 'the-token', lines: { tagFrom: 'device' } });
    for (const path of ['/api/v2/write?bucket=any&org=any', '/write?db=telegraf&consistency=any']) {
      const { status, body } = await post(path);
      // Both outputs drop a batch with this status; older ones also require this text.
      expect([status, body.error]).toEqual([400, expect.stringMatching(/^partial write: .* dropped=2$/)]);
    }
    const addresses = ['881/process/flow/#12 12.5', '881//temperature/degree_celsius 21', '900//load/ 0.25'];
    expect(listener.addresses).toEqual([...addresses, ...addresses]);
    expect(listener.bench.counted.get('influx')).toBe(6);
  });

  it('receives other errors in the format of each version', async () => {
    await listen({ token: undefined });
    const one = await listener.send('/write?precision=x', 'GW-01 load=1');
    expect([one.status, one.body.error, one.headers['x-influxdb-error']]).toEqual([
      400,
      'unable to parse: unknown precision',
      'unknown precision',
    ]);
    const two = await listener.lines('GW-01 load=1', '?precision=x');
    expect([two.status, two.body.code, two.body.message]).toEqual([400, 'invalid', 'unknown precision']);
  });

  it('can create its database, and probe the listener', async () => {
    await listen({ token: undefined });
    const query = (q: string) =>
      listener.send('/query', `q=${encodeURIComponent(q)}`, { 'Content-Type': 'application/x-www-form-urlencoded' });
    expect((await query('CREATE DATABASE "telegraf"')).text.trim()).toBe('{"results":[{"statement_id":0}]}');
    expect((await query('SHOW DATABASES')).text).toContain('tagferry');
    expect((await query('SELECT 1')).status).toBe(400);
    const get = (path: string, method = 'GET') => listener.send(path, undefined, {}, { method });
    expect([(await get('/ping')).status, (await get('/ping', 'HEAD')).status]).toEqual([204, 204]);
    expect((await get('/ping?verbose=true')).body).toEqual({ version: '1.8.10' });
    expect((await get('/health')).body).toMatchObject({ status: 'pass' });
    expect((await get('/write')).headers.allow).toBe('POST');
  });
});
