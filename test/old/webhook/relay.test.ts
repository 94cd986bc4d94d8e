import { connect, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sign } from '../../../src/webhook/signature.ts';
import { bodyOf, deliver, RelayPlant, ranAt, relayedBy, SECRET, SIGNATURE, unfinishedAt } from './relay-plant.ts';

let plant: RelayPlant;
let clients: MqttClient[];

beforeEach(async () => {
  plant = await RelayPlant.start();
  clients = [];
});
afterEach(async () => {
  for (const client of clients) client.end(true);
  await plant.dispose();
});

async function mqttClient(port: number): Promise<MqttClient> {
  const client = connect(`mqtt://127.0.0.1:${port}`, { protocolVersion: 5, reconnectPeriod: 0 });
  clients.push(client);
  client.on('error', () => {});
  await new Promise<void>((resolve) => client.once('connect', () => resolve()));
  return client;
}

describe('events relayed by a broker', () => {
  it.each(['mqtt', 'nats'] as const)(
    'over %s reach each affected gateway once, even after it was off, except for reactions interrupted by kill -9',
    async (kind) => {
      const { source, topic } = await plant.broker(kind);
      const from = { WEBHOOK_FROM: `broker ${topic}` };
      const meant = await plant.agent(source, { env: from, asset: 881 });
      const other = await plant.agent(source, { env: from, asset: 902 });
      const relay = await plant.agent(source, { env: { WEBHOOK_TO: `broker ${topic}` }, asset: 1 });
      await plant.openWay(relay, [meant]);
      const sent: number[] = [];
      let unfinished: number[] = [];
      for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
        for (let n = 0; n < 10; n++) {
          sent.push(sent.length + 1);
          await deliver(relay, bodyOf(881, sent.length));
        }
        await meant.end(signal);
        if (signal === 'SIGKILL') unfinished = await unfinishedAt(meant);
        for (let n = 0; n < 5; n++) {
          sent.push(sent.length + 1);
          await deliver(relay, bodyOf(881, sent.length));
        }
        await relay.until(async () => (await relayedBy(relay)) > sent.length, 'the broker has the messages');
        await meant.start();
      }
      await meant.until(() => sent.every((number) => ranAt(meant).includes(number)), 'every event has arrived');
      expect((await meant.call(meant.ops, '/status')).status).toBe(200);
      // A command whose end was not recorded before the kill runs a second time; nothing else does.
      const ran = ranAt(meant);
      const timesOf = (number: number) => ran.filter((one) => one === number).length;
      expect(sent.filter((number) => timesOf(number) !== 1 && !unfinished.includes(number))).toEqual([]);
      expect(sent.filter((number) => timesOf(number) > 2)).toEqual([]);
      await other.until(
        async () => (await other.metric('tagferry_events_elsewhere_total')) > sent.length,
        'the gateway has received all events',
      );
      expect(await other.metric('tagferry_events_received_total')).toBe(0);
    },
  );

  it('are rejected if the broker modifies them, and ignored if it repeats them', async () => {
    const { source } = await plant.broker('mqtt');
    const { port } = plant.mosquitto!;
    const gateway = await plant.agent(source, { env: { WEBHOOK_FROM: 'broker tampered/events' }, asset: 881 });
    const relay = await plant.agent(source, { env: { WEBHOOK_TO: 'broker platform/events' }, asset: 1 });
    const tamperer = await mqttClient(port);
    const passOn = (payload: Buffer | string, userProperties?: Record<string, string>) =>
      tamperer.publishAsync('tampered/events', payload, {
        qos: 1,
        ...(userProperties ? { properties: { userProperties } } : {}),
      });
    const works: Promise<unknown>[] = [];
    const relayed: { body: string; signature: string | undefined }[] = [];
    tamperer.on('message', (_, payload, packet) => {
      const signed = { ...packet.properties?.userProperties } as Record<string, string>;
      relayed.push({ body: payload.toString(), signature: signed[SIGNATURE.toLowerCase()] });
      const changed = payload.toString().replace('"id":881', '"id":881,"more":1').replace('"value":1', '"value":1000');
      works.push(
        (async () => {
          await passOn(changed, signed);
          await passOn(payload);
          await passOn(payload, { ...signed, [SIGNATURE.toLowerCase()]: sign(payload, 'another secret') });
          // Sent twice without changes, the event counts once.
          await passOn(payload, signed);
          await passOn(payload, signed);
        })(),
      );
    });
    await tamperer.subscribeAsync('platform/events', { qos: 1 });
    await gateway.until(async () => {
      // Waits until the gateway subscription is active, which only the gateway knows.
      await passOn('{}');
      return (await gateway.metric('tagferry_events_rejected_total')) > 0;
    }, 'the gateway is listening');
    const before = await gateway.metric('tagferry_events_rejected_total{reason="signature_wrong"}');
    const body = bodyOf(881, 1);
    // Uppercase digits identify the platform's original signature, because the relay would use lowercase.
    const signature = sign(Buffer.from(body), SECRET).replace(/(?<=sha256=).*/, (hex) => hex.toUpperCase());
    await deliver(relay, body, signature);
    await gateway.until(() => ranAt(gateway).length > 0, 'the unchanged event has arrived');
    expect(relayed).toEqual([{ body, signature }]);
    await Promise.allSettled(works);
    await gateway.until(
      async () => (await gateway.metric('tagferry_events_rejected_total{reason="signature_wrong"}')) === before + 2,
      'the changed event is counted',
    );
    expect(ranAt(gateway)).toEqual([1]);
    expect(await gateway.metric('tagferry_events_received_total')).toBe(1);
    expect(gateway.output).not.toContain(SECRET);
  });

  it("about access affect holds only if they refer to this gateway's user", async () => {
    const { source, topic } = await plant.broker('mqtt');
    const from = { WEBHOOK_FROM: `broker ${topic}` };
    const known = await plant.agent(source, { env: { ...from, TECHNICAL_USER_ID: '5' }, asset: 881 });
    const unknown = await plant.agent(source, { env: from, asset: 881 });
    const relay = await plant.agent(source, { env: { WEBHOOK_TO: `broker ${topic}` }, asset: 1 });
    await plant.openWay(relay, [known, unknown]);
    const gone = (user: number) =>
      JSON.stringify({
        event_type: 'asset_disappeared',
        occurred_at: new Date().toISOString(),
        content: { asset: { id: 881 }, user: { id: user } },
      });
    await deliver(relay, gone(6));
    await known.until(
      async () => (await known.metric('tagferry_events_elsewhere_total')) === 1,
      'an event for another user is ignored',
    );
    expect(await known.metric('tagferry_assets_held')).toBe(0);
    await deliver(relay, gone(5));
    await known.until(
      async () => (await known.metric('tagferry_assets_held')) === 1,
      'the gateway’s own event holds the asset',
    );
    await unknown.until(
      () => unknown.logged('access.user_unknown').length === 1,
      'the agent reports that its user is unknown',
    );
    expect(await unknown.metric('tagferry_assets_held')).toBe(0);
    expect(await unknown.metric('tagferry_events_received_total{event_type="asset_disappeared"}')).toBe(2);
  });
});
