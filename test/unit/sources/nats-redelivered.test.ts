import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { PullOptions, StreamMessage } from '../../../src/broker/nats/nats-pull.ts';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { NatsSource } from '../../../src/sources/nats/nats-source.ts';
import { makeIntakeBench, until } from './sink-double.ts';

/** Source with a store in memory, and its pull options. */
function makeBench() {
  const bench = makeIntakeBench();
  let asked: PullOptions | undefined;
  const broker = {
    pull: (options: PullOptions) => {
      asked = options;
      return {};
    },
    state: () => ({ connected: true, failures: 0 }),
  };
  const spec = { topic: 'site.a', template: 'site.a' };
  const series = bench.catalogue.idOf(881, 'flow', undefined, undefined);
  const source = new NatsSource(
    {
      source: { name: 'line', timeFrom: 'arrival', spec: { stream: 'PLANT', durable: 'gateways', ordered: false } },
      points: [{ name: 'FT-101 flow', series, everyMs: 0, shaping: UNSHAPED, spec }],
      brokers: { nats: () => broker },
      gate: bench.gateOf('line', 'arrival'),
      clock: bench.clock,
      log: silentLogger(),
    } as unknown as ConstructorParameters<typeof NatsSource>[0],
    new Map(),
  );
  source.start();
  return { source, sink: bench.sink, pull: asked! };
}

const message = (seq: number, text: string, redelivered: boolean, storedNs = 1n): StreamMessage => ({
  subject: 'site.a',
  payload: Buffer.from(text),
  header: () => undefined,
  seq,
  storedNs,
  redelivered,
});

describe('redelivered stream message', () => {
  it('is stored once if it is redelivered just before its acknowledgement is confirmed', async () => {
    const { source, sink, pull } = makeBench();
    await pull.handler(message(42, '12.5', false));
    pull.acknowledged?.(42);
    await pull.handler(message(42, '12.5', true));
    expect(sink.stored.map(({ value }) => value)).toEqual([12.5]);
    expect(source.state().redelivered).toEqual({ known: 1, taken: 0 });
  });

  it('is stored once if it arrives again without the redelivery flag while waiting for the disk', async () => {
    const { source, sink, pull } = makeBench();
    sink.holds = true;
    const both = Promise.all([pull.handler(message(42, '12.5', true)), pull.handler(message(42, '12.5', false))]);
    await until(() => sink.waiting > 0);
    sink.holds = false;
    sink.commit();
    await both;
    expect(sink.stored.map(({ value }) => value)).toEqual([12.5]);
    expect(source.state().redelivered).toEqual({ known: 1, taken: 1 });
  });

  it('is stored again if the stream was recreated', async () => {
    const { source, sink, pull } = makeBench();
    await pull.handler(message(42, '12.5', false));
    pull.acknowledged?.(42);
    await pull.handler(message(42, '12.5', false, 2n));
    await pull.handler(message(42, '12.5', true, 3n));
    await pull.handler(message(42, '12.5', true, 3n));
    expect(sink.stored.map(({ value }) => value)).toEqual([12.5, 12.5, 12.5]);
    expect(source.state().redelivered).toEqual({ known: 1, taken: 1 });
  });
});
