import { afterEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { TAMPERING_NAMES } from '../../../src/sandbox/webhooks/tampering.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';

describe('webhook faults', () => {
  let sandbox: Sandbox;
  let receiver: Receiver;
  afterEach(async () => {
    await sandbox.stop();
    await receiver.stop();
  });

  async function begin(): Promise<Visitor> {
    sandbox = new Sandbox();
    await sandbox.start();
    receiver = new Receiver();
    await receiver.start();
    const visitor = await Visitor.signedIn(sandbox);
    await visitor.call('POST', '/v1/client_applications/3/webhooks', {
      url: receiver.url,
      event_types: ['asset_updated'],
    });
    return visitor;
  }

  it('affect one attempt, check its response, and leave the schedule unchanged', async () => {
    const visitor = await begin();
    receiver.status = 401;
    const set = await visitor.call('POST', '/sandbox/webhook-faults', { kind: 'forged', times: 1 });
    expect(set.status).toBe(201);
    sandbox.cause('asset_updated');
    await vi.waitFor(() => expect(sandbox.webhookFaults.outcomes()).toHaveLength(1));
    expect((await visitor.get('/sandbox/webhook-faults')).body).toMatchObject({
      faults: [],
      outcomes: [{ kind: 'forged', verdict: 'reject', answer: 401, isRight: true, webhook: 1 }],
    });
    receiver.status = 204;
    sandbox.clock.advance(60_000);
    await vi.waitFor(() => expect(sandbox.deliveries()[0]!.status).toBe('delivered'));
    const [forged, genuine] = receiver.received.map(({ headers }) => headers['x-hub-signature-sha256']);
    expect(forged).not.toBe(genuine);
  });

  it('reorder and duplicate deliveries', async () => {
    await begin();
    sandbox.webhookFaults.add({ kind: 'reordered', times: 1, delayMs: 30_000 });
    sandbox.cause('asset_updated', { changes: { description: 'first' } });
    sandbox.cause('asset_updated', { changes: { description: 'second' } });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2));
    const times = receiver.received.map(({ event }) => Date.parse(event.occurred_at));
    expect(sandbox.deliveries().map(({ status }) => status)).toEqual(['delivered', 'delivered']);
    const [one, two] = sandbox.deliveries().map(({ payload }) => payload);
    expect(receiver.received.map(({ raw }) => raw.toString())).toEqual([two, one]);
    expect(times[0]).toBeGreaterThanOrEqual(times[1]!);

    sandbox.webhookFaults.add({ kind: 'duplicate', times: 1 });
    sandbox.cause('asset_updated', { changes: { description: 'third' } });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(4));
    expect(receiver.received[2]!.raw).toEqual(receiver.received[3]!.raw);
  });

  it('are listed with their types', async () => {
    const visitor = await begin();
    const { kinds } = (await visitor.get('/sandbox/webhook-faults')).body;
    expect(kinds.map(({ kind }: { kind: string }) => kind)).toEqual(TAMPERING_NAMES);
    const reply = await visitor.call('POST', '/sandbox/webhook-faults', { kind: 'forgd' });
    expect(reply.body.errors[0]).toMatchObject({ attribute: 'kind', message: expect.stringContaining('forged') });
  });
});
