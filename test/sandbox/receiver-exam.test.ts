import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { sampleEvents } from '../../src/sandbox/exam/sample-events.ts';
import { examineReceiver } from '../../src/sandbox/index.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { TAMPERING_NAMES, TAMPERINGS } from '../../src/sandbox/webhooks/tampering.ts';
import { SANDBOX_MAIN } from '../built-agent.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';
import { outdated, type Receive, rewriting, trusting, WrongReceiver } from './wrong-receivers.ts';

let wrong: WrongReceiver | undefined;
afterEach(async () => {
  await wrong?.stop();
  wrong = undefined;
});

async function missingMarks(receive: Receive): Promise<string[]> {
  wrong = new WrongReceiver(receive);
  await wrong.start();
  const marks = await examineReceiver({ url: wrong.url, secret: wrong.secret });
  return marks.filter(({ state }) => state !== 'held').map(({ id }) => id);
}

describe('the exam of a receiver', () => {
  it('holds a payload of each event type', () => {
    expect([...sampleEvents().keys()].sort()).toEqual([...EVENT_TYPES].sort());
  });

  it('misses every refusal of one that trusts everybody', async () => {
    expect(await missingMarks(trusting)).toEqual([
      ...['forged', 'unsigned', 'sha1-only', 'sha1-right', 'truncated', 'repeated-forged', 'reserialised', 'altered'],
      ...['redirected', 'empty'],
    ]);
  });

  it('misses the raw bytes of one that signs what it has written anew', async () => {
    expect(await missingMarks(rewriting)).toEqual(['raw-bytes', 'reserialised', 'empty']);
  });

  it('misses what one lacks that knows the deprecated signature alone, in one spelling, once', async () => {
    expect(await missingMarks(outdated())).toEqual([
      ...['sha1-only', 'sha1-right', 'sha256-only', 'truncated', 'header-case', 'repeated-forged', 'duplicate'],
    ]);
  });

  it('is a verb: a table, exit 1 where a mark is missing, the secret never on the command line', async () => {
    wrong = new WrongReceiver(trusting);
    await wrong.start();
    const folder = mkdtempSync(join(tmpdir(), 'sandbox-exam-'));
    try {
      const file = join(folder, 'secret');
      writeFileSync(file, `${wrong.secret}\n`);
      const exam = [SANDBOX_MAIN, 'exam', '--receiver', wrong.url, '--secret-file', file];
      const ran = await promisify(execFile)(process.execPath, exam).catch((error) => error);
      expect(ran.code).toBe(1);
      expect(ran.stdout).toMatch(/^yes +genuine +6\.1 +takes what is signed rightly +204$/m);
      expect(ran.stdout).toMatch(/^NO +forged +7 +refuses: signed with another secret +204$/m);
      expect(ran.stdout).toMatch(/\d+ of \d+ requirements are met\.\n$/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('a fault on the way to a receiver', () => {
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

  it('touches one attempt, is held against its verdict, and the right delivery comes by the schedule', async () => {
    const visitor = await begin();
    receiver.status = 401;
    const set = await visitor.call('POST', '/sandbox/webhook-faults', { kind: 'forged', times: 1 });
    expect(set.status).toBe(201);
    sandbox.cause('asset_updated');
    await vi.waitFor(() => expect(sandbox.webhookFaults.outcomes()).toHaveLength(1));
    expect((await visitor.get('/sandbox/webhook-faults')).body).toMatchObject({
      faults: [],
      outcomes: [{ kind: 'forged', verdict: 'refuse', answer: 401, isRight: true, webhook: 1 }],
    });
    receiver.status = 204;
    sandbox.clock.advance(60_000);
    await vi.waitFor(() => expect(sandbox.deliveries()[0]!.status).toBe('delivered'));
    const [forged, genuine] = receiver.received.map(({ headers }) => headers['x-hub-signature-sha256']);
    expect(forged).not.toBe(genuine);
  });

  it('may hold one back until a later one was sent, or send one twice', async () => {
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

  it('of every kind has a verdict and is listed with it', async () => {
    const visitor = await begin();
    const { kinds } = (await visitor.get('/sandbox/webhook-faults')).body;
    expect(kinds.map(({ kind }: { kind: string }) => kind)).toEqual(TAMPERING_NAMES);
    for (const { verdict } of Object.values(TAMPERINGS)) expect(['take', 'refuse', 'either']).toContain(verdict);
    const reply = await visitor.call('POST', '/sandbox/webhook-faults', { kind: 'forgd' });
    expect(reply.body.errors[0]).toMatchObject({ attribute: 'kind', message: expect.stringContaining('forged') });
  });
});
