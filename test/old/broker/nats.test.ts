import { jetstream } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/base/clock.ts';
import { TagferryError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { MAX_PACKET_BYTES } from '../../../src/broker/discards.ts';
import { InspectionNats } from '../../../src/broker/nats/inspection-nats.ts';
import { NatsBroker } from '../../../src/broker/nats/nats-broker.ts';
import type { StreamMessage } from '../../../src/broker/nats/nats-pull.ts';
import type { NatsSpec } from '../../../src/broker/nats/nats-spec.ts';
import { commonSubject, covers, NATS_SUBJECTS } from '../../../src/broker/topic-filters.ts';
import { PUBLISH } from '../../../src/reactions/actions/publish.ts';
import { scanMessages } from '../../../src/sources/messages/scan.ts';
import { NatsServers } from '../../e2e/harness/nats-servers.ts';

let servers: NatsServers;
let plant: NatsConnection;
let broker: NatsBroker;

const specOf = (more: Partial<NatsSpec> = {}): NatsSpec => ({
  servers: [servers.url],
  ackWaitMs: 1_000,
  ordered: false,
  ...more,
});

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (const end = Date.now() + 60_000; !(await condition()); ) {
    if (Date.now() > end) throw new Error(`timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe('NATS broker', () => {
  beforeEach(async () => {
    servers = await NatsServers.make();
    await servers.start();
    plant = await servers.connection();
    const manager = await servers.manager();
    await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
    broker = new NatsBroker({ name: 'line', spec: specOf(), clientId: 'gw-1', clock, logger: silentLogger() });
    broker.start();
  });
  afterEach(async () => {
    await broker.stop(0);
    await servers.dispose();
  });

  const pulled = (handler: (message: StreamMessage) => Promise<void>, subjects = ['site.a']) =>
    broker.pull({ stream: undefined, ordered: false, subjects: () => subjects, handler });

  it('delivers headers, and acknowledges a message once its handler has stored it', async () => {
    const seen: (string | undefined)[] = [];
    let isFull = true;
    pulled(async ({ payload, header }) => {
      if (isFull) throw new Error('full');
      seen.push(Buffer.from(payload).toString(), header('X-Sign'));
    });
    await broker.publish('site.a', 'one', { headers: { 'x-sign': 'yes' } });
    await until(() => broker.state().received === 1, 'delivered');
    const manager = await servers.manager();
    const unacknowledged = async () => (await manager.consumers.info('PLANT', 'gw-1')).num_ack_pending;
    expect(await unacknowledged()).toBe(1);
    isFull = false;
    await until(async () => (await unacknowledged()) === 0, 'acknowledged');
    expect(seen.slice(0, 2)).toEqual(['one', 'yes']);
  });

  it.each(['site.a', 'other'])(
    'sends nothing to %s if `beforeSend` throws once the server is connected',
    async (subject) => {
      const received: string[] = [];
      plant.subscribe(subject, { callback: (_, message) => void received.push(message.string()) });
      await plant.flush();
      let isConnected: boolean | undefined;
      const sending = broker.publish(subject, 'x', {
        beforeSend: () => {
          isConnected = broker.state().connected;
          throw new TagferryError('too late', { code: 'late' });
        },
      });
      await expect(sending).rejects.toMatchObject({ code: 'late' });
      await broker.publish(subject, 'y');
      await plant.flush();
      expect([isConnected, received]).toEqual([true, ['y']]);
    },
  );

  it('delivers messages again that the handler rejects', async () => {
    const stored = new Set<number>();
    let calls = 0;
    pulled(async ({ payload }) => {
      if (++calls % 40 === 0) throw new Error('full');
      stored.add(Number(Buffer.from(payload)));
    });
    await until(() => broker.state().connected, 'connected');
    for (let n = 0; n < 300; n++) await broker.publish('site.a', `${n}`);
    await until(() => stored.size === 300, 'all messages stored');
    expect(broker.state().returned).toBeGreaterThan(0);
  });

  it("widens its own consumer's filter, and leaves other consumers unchanged", async () => {
    const manager = await servers.manager();
    const subjects = ['site.a', 'site.b'];
    const seen: string[] = [];
    const pull = pulled(async ({ subject }) => void seen.push(subject), subjects);
    await broker.publish('site.a', '1');
    await until(() => seen.length === 1, 'first message delivered');
    subjects.push('site.b.c');
    pull.changed();
    // Messages arrive only once the filter is widened.
    await until(async () => {
      await broker.publish('site.b.c', '2');
      return seen.includes('site.b.c');
    }, 'message of the new subject delivered');
    expect((await manager.consumers.info('PLANT', 'gw-1')).config.filter_subject).toBe('site.>');
    await manager.consumers.add('PLANT', { durable_name: 'own', ack_policy: 'explicit', filter_subject: 'site.x' });
    broker.pull({
      stream: 'PLANT',
      durable: 'own',
      ordered: false,
      subjects: () => ['site.a'],
      handler: async () => {},
    });
    await until(() => broker.state().problem === 'broker.consumer', 'consumer problem reported');
    expect((await manager.consumers.info('PLANT', 'own')).config.filter_subject).toBe('site.x');
  });

  it('publishes each message once without a stream, and once per message ID with a stream', async () => {
    const heard: string[] = [];
    plant.subscribe('alarms.>', { callback: (_, { subject }) => void heard.push(subject) });
    await plant.flush();
    const action = {
      kind: 'publish',
      broker: 'line',
      topic: 'alarms.{{content.tag}}',
      isSubject: true,
      retain: false,
    } as const;
    const event = { payload: '{}', envelope: { content: { tag: 'FT.1 > *' } } };
    const context = { event, signal: new AbortController().signal } as never;
    const publish = (_: string, ...rest: Parameters<NatsBroker['publish']>) => broker.publish(...rest);
    expect(await PUBLISH.perform(action, context, { publish } as never)).toMatchObject({ outcome: 'done' });
    await until(() => heard.length > 0, 'message received');
    await broker.publish('site.a', '1', { id: 'same' });
    await broker.publish('site.a', '1', { id: 'same' });
    const manager = await servers.manager();
    expect((await manager.streams.info('PLANT')).state.messages).toBe(1);
    expect(heard).toEqual(['alarms.FT_1____']);
  });

  it('rejects a message that exceeds the server limit, or that requires storage but matches no stream', async () => {
    const large = broker.publish('site.a', Buffer.alloc(1024 * 1024));
    await expect(large).resolves.toBeUndefined();
    const larger = broker.publish('site.a', Buffer.alloc(1024 * 1024 + 1));
    await expect(larger).rejects.toMatchObject({ code: 'broker.too_large', retryable: false });
    const unkept = broker.publish('alarms.a', '{}', { mustKeep: true });
    await expect(unkept).rejects.toMatchObject({ code: 'broker.stream', retryable: true });
    await broker.publish('site.a', '{}', { mustKeep: true });
    const manager = await servers.manager();
    expect((await manager.streams.info('PLANT')).state.messages).toBe(2);
    expect(broker.state()).toMatchObject({ connected: true, failures: 0 });
  });

  it('rejects invalid subjects', async () => {
    for (const subject of ['', 'a..b', 'a.*', 'a b', 'a.>']) {
      await expect(broker.publish(subject, '')).rejects.toMatchObject({ code: 'broker.topic' });
    }
  });

  // Found by `scripts/prove soak`: only a hundred messages arrived in three seconds, so a backlog grew.
  it('requests more messages immediately after a full batch, without reporting inactivity', async () => {
    const asked: { batch: number; max_bytes: number }[] = [];
    for (let i = 0; i < 1_000; i++) await broker.publish('site.a', String(i));
    plant.subscribe('$JS.API.CONSUMER.MSG.NEXT.>', {
      callback: (_error, message) => void asked.push(message.json()),
    });
    await plant.flush();
    let taken = 0;
    const pull = pulled(async () => void taken++);
    const problems = new Set<string | undefined>();
    await until(() => problems.add(pull.problem) && taken === 1_000, 'all messages delivered');
    expect([...problems]).toEqual([undefined]);
    // The agent waits for the number of messages that the client requests.
    expect(asked[0]).toMatchObject({ batch: 100, max_bytes: 4 * 1024 * 1024 });
  });

  it('accepts messages above the request limit, and stops redelivery of oversized messages', async () => {
    await servers.stop(0);
    servers.startOne(0, 'max_payload: 8MB');
    await servers.untilReady();
    const sizes: number[] = [];
    pulled(async ({ payload }) => void sizes.push(payload.length));
    const stream = jetstream(await servers.connection());
    for (const size of [10, MAX_PACKET_BYTES, MAX_PACKET_BYTES + 1, 20]) {
      await stream.publish('site.a', new Uint8Array(size));
    }
    await until(() => sizes.length >= 3 && broker.state().discarded > 0, 'messages of all sizes are delivered');
    const manager = await servers.manager();
    await until(
      async () => (await manager.consumers.info('PLANT', 'gw-1')).num_ack_pending === 0,
      'all messages are settled',
    );
    expect(sizes.toSorted((a, b) => a - b)).toEqual([10, 20, MAX_PACKET_BYTES]);
    expect(broker.state()).toMatchObject({ discarded: 1, returned: 0, connected: true });
  });

  it('shows stored and new messages without leaving a consumer behind', async () => {
    await broker.publish('site.a', '{"v":1.5,"t":1795219200000}');
    const client = new InspectionNats({ name: 'line', spec: specOf(), clock });
    const found: unknown[] = [];
    const signal = AbortSignal.timeout(30_000);
    for await (const step of scanMessages({
      broker: client,
      grammar: NATS_SUBJECTS,
      what: ['site.>'],
      waitMs: 2_000,
      clock,
      signal,
    })) {
      if ('found' in step) found.push(step.found);
    }
    expect(found).toEqual([{ key: 'v', members: { subject: 'site.a', at: '/v', time: '/t' }, sample: '1.5' }]);
  });

  it.each([
    [['a.b', 'a.c'], 'a.*'],
    [['a.b', 'a.b.c'], 'a.>'],
    [['a.>', 'b'], '>'],
    [['a.*', 'a.b.c', 'a.x'], 'a.>'],
    [['x.a', 'y.a'], '*.a'],
    [['a.>', 'b.c'], '>'],
    [['a', 'a.b'], '>'],
  ])('combines %j into the subject %s', (subjects, common) => {
    expect(commonSubject(subjects)).toBe(common);
    for (const subject of subjects) expect(covers(common, subject, NATS_SUBJECTS)).toBe(true);
  });
});

describe('partitioned NATS cluster without a leader', () => {
  it('acknowledges messages only once a leader exists and a stream has stored them', async () => {
    servers = await NatsServers.make(3);
    try {
      await servers.start();
      const manager = await servers.manager();
      await manager.streams.add({ name: 'PLANT', subjects: ['site.>'], num_replicas: 3 });
      const stays = `nats://127.0.0.1:${servers.ports[2]}`;
      broker = new NatsBroker({
        name: 'line',
        spec: specOf({ servers: [stays] }),
        clientId: 'gw-1',
        clock,
        logger: silentLogger(),
      });
      broker.start();
      await until(() => broker.state().connected, 'connected');
      // The stream lookup is not cached yet.
      for (const at of [0, 1]) await servers.stop(at, 'SIGKILL');
      const alone = broker.publish('site.a', 'alone');
      await expect(alone).rejects.toMatchObject({ code: 'broker.publish', retryable: true });
      for (const at of [0, 1]) servers.startOne(at);
      await until(
        () =>
          broker.publish('site.a', 'together', { id: 'together' }).then(
            () => true,
            () => false,
          ),
        'message accepted',
      );
      // The stream may also contain the unconfirmed message, which the publisher sends again.
      await until(async () => {
        const last = await manager.streams.getMessage('PLANT', { last_by_subj: 'site.a' }).catch(() => undefined);
        return last?.string() === 'together';
      }, 'message stored in the stream');
    } finally {
      await broker.stop(0);
      await servers.dispose();
    }
  });
});
