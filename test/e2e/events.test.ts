// Requires: mosquitto, prlimit
import { execFileSync } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import {
  deliver,
  eventBody,
  listEvents,
  listening,
  Receiver,
  signatureOf,
  thresholdContent,
  type Webhook,
  webhookSettings,
} from './harness/events.ts';
import { Mosquitto } from './harness/mosquitto.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { runVerb } from './harness/verb.ts';

let platform: Platform;
let receiver: Receiver;
let agents: AgentProcess[];
let settings: { WEBHOOK_LISTEN: string; WEBHOOK_URL: string };

beforeEach(async () => {
  platform = await Platform.start();
  receiver = await Receiver.start();
  settings = await webhookSettings();
  agents = [];
});
afterEach(async () => {
  for (const agent of agents) await agent.dispose();
  await receiver.stop();
  await platform.stop();
});

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';

/** Each event causes one request to the receiver. */
function configure(agent: AgentProcess, env: Record<string, string> = {}, tags = TAGS): void {
  const rule = `{ name: notify, on: threshold_reached, max_age: 0, do: [{ post: "${receiver.url}/" }] }`;
  agent.write(platform.url, { env: { ...settings, ...env }, tags, reactions: `reactions:\n  - ${rule}\n` });
}

function make(): AgentProcess {
  const agent = new AgentProcess(platform.url);
  agents.push(agent);
  return agent;
}

async function start(agent: AgentProcess): Promise<void> {
  await agent.start();
  await listening(agent, settings.WEBHOOK_URL);
}

async function begin(env: Record<string, string> = {}): Promise<AgentProcess> {
  const agent = make();
  configure(agent, env);
  await start(agent);
  return agent;
}

const webhook = (): Webhook => ({ url: settings.WEBHOOK_URL, secret: platform.webhooks()[0]!.secret });

let serial = 0;
/** Body of a new event. Its number is also the offset of its time, by which `events ls` identifies it. */
function newEvent(): { number: number; body: string; occurredAt: string } {
  const number = ++serial;
  const atMs = Date.now() + number;
  return {
    number,
    body: eventBody(thresholdContent(number, 5_000 + number), atMs),
    occurredAt: new Date(atMs).toISOString(),
  };
}

/** Sends new events from the platform. Returns their numbers. */
function announce(count: number): number[] {
  return Array.from({ length: count }, () => {
    const number = ++serial;
    platform.announce('threshold_reached', thresholdContent(number, 5_000 + number));
    return number;
  });
}

/** Lets the platform repeat its deliveries until all have been accepted. */
async function allDelivered(agent: AgentProcess): Promise<void> {
  await agent.until(async () => {
    platform.advance(5_000);
    await new Promise((resolve) => setTimeout(resolve, 20));
    return platform.deliveries().every(({ status }) => status === 'delivered');
  }, 'every delivery is accepted');
}

const hasReacted = (numbers: readonly number[]) => {
  const received = new Set(receiver.numbers());
  return numbers.every((number) => received.has(number));
};

async function conflicts(agent: AgentProcess): Promise<{ kind: string }[]> {
  return ((await agent.status()) as { identity_conflicts: { kind: string }[] }).identity_conflicts;
}

/** Sends a request to the platform as the technical user, like an operator's script. */
async function asTechnicalUser(method: string, path: string, body?: object): Promise<Record<string, unknown>> {
  const { clientId, clientSecret, technicalUsername: username, technicalPassword: password } = CREDENTIALS;
  const form = { grant_type: 'password', username, password, client_id: clientId, client_secret: clientSecret };
  const granted = await fetch(`${platform.url}/oauth/token`, { method: 'POST', body: new URLSearchParams(form) });
  const { access_token } = (await granted.json()) as { access_token: string };
  const response = await fetch(`${platform.url}/v1/client_applications/3/webhooks${path}`, {
    method,
    headers: { Authorization: `Bearer ${access_token}`, 'Content-Type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.status === 204 ? {} : ((await response.json()) as Record<string, unknown>);
}

describe('acknowledged event', () => {
  it('is listed once and runs its reaction if kill -9 follows its 204', async () => {
    const agent = await begin();
    const sent = new Set<string>();
    const acknowledged: ReturnType<typeof newEvent>[] = [];
    for (let round = 0; round < 3; round++) {
      const killAt = acknowledged.length + 1 + 4 * round;
      let killed = false;
      const senders = Array.from({ length: 4 }, async () => {
        for (let event = newEvent(); !killed; ) {
          sent.add(event.occurredAt);
          if ((await deliver(webhook(), event.body)) !== 204) {
            await new Promise((resolve) => setTimeout(resolve, 10));
            continue;
          }
          acknowledged.push(event);
          event = newEvent();
          if (acknowledged.length < killAt || killed) continue;
          killed = true;
          agent.signal('SIGKILL');
        }
      });
      await Promise.all([...senders, agent.ended()]);
      await start(agent);
    }
    await agent.until(() => hasReacted(acknowledged.map(({ number }) => number)), 'every reaction has run');
    const times = async () => (await listEvents(agent)).map(({ occurred_at }) => occurred_at);
    const listed = await times();
    expect(acknowledged.map(({ occurredAt }) => occurredAt).filter((time) => !listed.includes(time))).toEqual([]);
    expect(new Set(listed).size).toBe(listed.length);
    expect(listed.filter((time) => !sent.has(time))).toEqual([]);
    // A platform that lost the 204 repeats the event.
    for (const { body } of acknowledged) expect(await deliver(webhook(), body)).toBe(204);
    expect(await times()).toEqual(listed);
  });

  it('is stored once and runs its reaction once if it is delivered repeatedly, even across kill -9', async () => {
    const agent = await begin();
    const { number, body } = newEvent();
    const statuses = await Promise.all(Array.from({ length: 8 }, () => deliver(webhook(), body)));
    expect(statuses).toEqual(Array.from({ length: 8 }, () => 204));
    await agent.until(async () => (await listEvents(agent))[0]?.state === 'done', 'the reaction is completed');
    await agent.end('SIGKILL');
    await start(agent);
    expect(await deliver(webhook(), body)).toBe(204);
    // A later event shows that the repeated event has been processed.
    const later = newEvent();
    expect(await deliver(webhook(), later.body)).toBe(204);
    await agent.until(() => hasReacted([later.number]), 'the later event has run its reaction');
    expect(await listEvents(agent)).toHaveLength(2);
    expect(receiver.numbers().sort((a, b) => a - b)).toEqual([number, later.number]);
  });
});

describe('webhook delivery', () => {
  it('is rejected without a trace if it is unsigned, wrongly signed, modified, truncated or too large', async () => {
    const agent = await begin();
    const own = webhook();
    const unsigned = () => agent.metric('tagferry_events_rejected_total{reason="signature_missing"}');
    const before = await unsigned();
    const { body } = newEvent();
    const signed = (signature: string) => ({ 'X-Hub-Signature-Sha256': signature });
    const right = signatureOf(body, own.secret);
    expect(await deliver(own, body, {})).toBe(401);
    expect(await deliver(own, body, signed(signatureOf(body, 'another secret')))).toBe(401);
    expect(await deliver(own, body, signed(signatureOf(body, '')))).toBe(401);
    expect(await deliver(own, body, signed(right.slice(0, 40)))).toBe(401);
    expect(await deliver(own, body.slice(0, -1), signed(right))).toBe(401);
    expect(await deliver(own, `${body} `, signed(right))).toBe(401);
    const large = JSON.stringify({ text: 'x'.repeat(2 ** 20) });
    expect(await deliver(own, large)).toBe(413);
    expect(await deliver({ ...own, url: `${own.url}/other` }, body)).toBe(404);
    expect((await fetch(own.url)).status).toBe(405);
    expect(await listEvents(agent)).toEqual([]);
    expect(await agent.metric('tagferry_events_received_total')).toBe(0);
    expect(await unsigned()).toBe(before + 1);
    expect(await agent.metric('tagferry_events_rejected_total{reason="signature_wrong"}')).toBeGreaterThan(3);
    expect(await deliver(own, body)).toBe(204);
    expect(await listEvents(agent)).toHaveLength(1);
    expect(agent.output).not.toContain(own.secret);
  });

  it('is accepted only with a valid signature, whichever way a platform or a forger sends it', async () => {
    const agent = await begin();
    const control = `${platform.adminUrl}/sandbox/webhook-faults`;
    const state = async () =>
      (await (await fetch(control)).json()) as {
        kinds: { kind: string }[];
        outcomes: { kind: string; isRight: boolean }[];
      };
    const { kinds } = await state();
    const sent: number[] = [];
    for (const { kind } of kinds) {
      const before = (await state()).outcomes.length;
      await fetch(control, { method: 'POST', body: JSON.stringify({ kind, times: 1, delayMs: 20 }) });
      sent.push(...announce(1));
      await agent.until(async () => (await state()).outcomes.length > before, `${kind} was sent`);
    }
    const { outcomes } = await state();
    expect(outcomes.map(({ kind }) => kind)).toEqual(kinds.map(({ kind }) => kind));
    expect(outcomes.filter(({ isRight }) => !isRight)).toEqual([]);
    // The platform repeats the rejected events unchanged.
    await allDelivered(agent);
    await agent.until(() => hasReacted(sent), 'every event has run its reaction');
    const events = await listEvents(agent);
    expect(events.filter(({ unrecognised }) => !unrecognised)).toHaveLength(sent.length);
  });

  it('is answered with 503 while the inbox cannot be written, and accepted when the platform repeats it', async () => {
    const agent = await begin();
    const limit = (size: string) => execFileSync('prlimit', ['--pid', String(agent.pid), `--fsize=${size}:`]);
    limit('0');
    expect(await deliver(webhook(), newEvent().body)).toBe(503);
    const sent = announce(3);
    await agent.until(() => platform.deliveries().every(({ attempts }) => attempts > 0), 'every event was sent');
    expect(platform.deliveries().some(({ status }) => status === 'delivered')).toBe(false);
    expect(receiver.numbers()).toEqual([]);
    limit('unlimited');
    await allDelivered(agent);
    await agent.until(() => hasReacted(sent), 'every event has run its reaction');
    expect(await listEvents(agent)).toHaveLength(3);
  });
});

describe('event that deviates from the specification', () => {
  it('runs its reaction if numbers are text, and is reported if it cannot be read', async () => {
    const agent = make();
    const rule = `{ name: notify, on: threshold_reached, if: { tag: FT-101 }, do: [{ post: "${receiver.url}/" }] }`;
    agent.write(platform.url, { env: settings, tags: TAGS, reactions: `reactions:\n  - ${rule}\n` });
    await start(agent);
    const content = thresholdContent(25);
    const text = {
      ...content,
      asset: { id: '881' },
      instrumentation: { id: '4711' },
      data: { ...(content.data as object), value: '25' },
      threshold: { ...(content.threshold as object), value: '20' },
    };
    expect(await deliver(webhook(), eventBody(text))).toBe(204);
    await agent.until(() => receiver.requests.length === 1, 'the reaction runs');
    const broken = { ...content, instrumentation: { id: 'FT-101' } };
    expect(await deliver(webhook(), eventBody(broken))).toBe(204);
    await agent.until(() => agent.logged('webhook.unreadable').length > 0, 'the event is reported');
    const problem = 'content.instrumentation.id must be integer';
    expect(agent.logged('webhook.unreadable')).toMatchObject([
      { level: 'warn', eventType: 'threshold_reached', problem },
    ]);
    expect(await agent.metric('tagferry_events_unreadable_total{event_type="threshold_reached"}')).toBe(1);
    const health = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(health.notes.join()).toContain(problem);
    expect(receiver.requests).toHaveLength(1);
  });
});

describe('event missed by a stopped agent', () => {
  it('is fetched once, even if kill -9 interrupts the catch-up and the platform then delivers it again', async () => {
    const agent = await begin();
    await agent.end('SIGKILL');
    // More than a page of the deliveries list.
    const missed = announce(120);
    // Without a listener, events arrive only from the deliveries list.
    configure(agent, { WEBHOOK_LISTEN: '' });
    agent.launch();
    await agent.until(() => receiver.requests.length > 0, 'the first events have been fetched');
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(() => hasReacted(missed), 'every event has run its reaction');
    expect(await listEvents(agent)).toHaveLength(missed.length);
    await agent.end('SIGTERM');
    configure(agent);
    await start(agent);
    await allDelivered(agent);
    expect(await listEvents(agent)).toHaveLength(missed.length);
    // The number in the header identifies the event.
    expect(new Set(receiver.requests.map(({ headers }) => headers['x-tagferry-event'])).size).toBe(missed.length);
  });
});

describe('secret rotation', () => {
  it('accepts deliveries with the old and the new secret, also after kill -9', async () => {
    const agent = await begin();
    const old = webhook();
    expect(await runVerb(agent, 'webhook', 'rotate-secret')).toMatchObject({ status: 0 });
    expect(webhook().secret).not.toBe(old.secret);
    expect([await deliver(old, newEvent().body), await deliver(webhook(), newEvent().body)]).toEqual([204, 204]);
    await agent.end('SIGKILL');
    await start(agent);
    expect([await deliver(old, newEvent().body), await deliver(webhook(), newEvent().body)]).toEqual([204, 204]);
    expect(await deliver({ ...old, secret: 'neither' }, newEvent().body)).toBe(401);
    expect(await listEvents(agent)).toHaveLength(4);
    for (const { secret } of [old, webhook()]) expect(agent.output).not.toContain(secret);
  });

  it('clears the report of a secret that another client changed', async () => {
    const agent = await begin();
    await asTechnicalUser('POST', `/${platform.webhooks()[0]!.id}/reset_secret`);
    announce(1);
    await agent.until(async () => (await conflicts(agent)).length > 0, 'the changed secret is reported');
    expect(await conflicts(agent)).toMatchObject([{ kind: 'webhook' }]);
    expect(await runVerb(agent, 'webhook', 'rotate-secret')).toMatchObject({ status: 0 });
    announce(1);
    await agent.until(async () => (await conflicts(agent)).length === 0, 'the report is cleared');
  });

  it('ends with a secret known to both sides if kill -9 prevents the response', async () => {
    const agent = await begin();
    const old = webhook().secret;
    platform.addFault({ path: '/v1/client_applications/*', method: 'POST', drop: 'after' });
    const rotation = runVerb(agent, 'webhook', 'rotate-secret');
    await agent.until(() => webhook().secret !== old, 'the platform has changed the secret');
    await agent.end('SIGKILL');
    await rotation;
    platform.clearFaults();
    const missed = announce(5);
    await agent.start();
    await allDelivered(agent);
    await agent.until(async () => (await deliver(webhook(), newEvent().body)) === 204, 'the secret is known');
    await agent.until(() => hasReacted(missed), 'every event has run its reaction');
    expect((await listEvents(agent)).length).toBe(missed.length + 1);
  });
});

describe('webhook registration', () => {
  it('is repaired after the webhook was changed or deleted on the platform', async () => {
    const agent = await begin();
    const path = () => `/${platform.webhooks()[0]!.id}`;
    const { event_types } = await asTechnicalUser('GET', path());
    await asTechnicalUser('PATCH', path(), {
      event_types: ['asset_updated'],
      properties: { asset_updated: ['status'] },
    });
    expect(await runVerb(agent, 'webhook', 'register')).toMatchObject({ status: 0 });
    expect(await asTechnicalUser('GET', path())).toMatchObject({ event_types, properties: {} });

    await asTechnicalUser('DELETE', path());
    await agent.end('SIGTERM');
    await agent.start();
    await agent.until(() => platform.webhooks().length === 1, 'the webhook is registered again');
    const sent = announce(1);
    await allDelivered(agent);
    await agent.until(() => hasReacted(sent), 'the event has run its reaction');
  });

  it('continues to be repaired after a command could not delete the webhook', async () => {
    const events = { WEBHOOK_EVENTS: 'asset_updated' };
    const agent = await begin(events);
    const { id } = platform.webhooks()[0]!;
    for (const status of [405, 500]) {
      const fault = platform.addFault({ method: 'DELETE', path: `/v1/client_applications/3/webhooks/${id}`, status });
      expect(await runVerb(agent, 'webhook', 'delete', '--yes')).toMatchObject({ status: 1 });
      platform.removeFault(fault);
    }
    const rule = '{ name: status, on: asset_updated, if: { asset.status.id: 5 }, do: [{ log: warn }] }';
    const env = { ...settings, ...events };
    agent.write(platform.url, { env, tags: TAGS, reactions: `reactions:\n  - ${rule}\n` });
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    const isFiltered = async () => JSON.stringify(await asTechnicalUser('GET', `/${id}`)).includes('"status"');
    await agent.until(isFiltered, 'the filters of the webhook are updated');
  });

  it('enables a webhook that the platform disabled according to WEBHOOK_REENABLE', async () => {
    const restarted = async (agent: AgentProcess, policy: string) => {
      configure(agent, { WEBHOOK_REENABLE: policy });
      await agent.start();
    };
    const isDisabled = () => platform.webhooks()[0]!.disabled;
    const agent = await begin();
    await agent.end('SIGTERM');
    // A person disabled it: no deliveries have failed.
    await asTechnicalUser('PATCH', `/${platform.webhooks()[0]!.id}`, { disabled: true });
    await restarted(agent, 'failures');
    await agent.until(() => agent.logged('webhook.stays_disabled').length > 0, 'the disabled webhook is reported');
    expect(isDisabled()).toBe(true);
    expect(await agent.metric('tagferry_webhook_disabled')).toBe(1);
    await agent.end('SIGTERM');
    await restarted(agent, 'always');
    await agent.until(() => !isDisabled(), 'the webhook is enabled');
    await agent.until(() => agent.logged('webhook.reenabled').length === 1, 'the change is reported');
    await agent.end('SIGTERM');
    // Two weeks of failed deliveries.
    await vi.waitFor(() => {
      announce(1);
      platform.advance(24 * 3_600_000);
      expect(isDisabled()).toBe(true);
    });
    await restarted(agent, 'never');
    await agent.until(() => agent.logged('webhook.stays_disabled').length > 1, 'the disabled webhook is reported');
    expect(isDisabled()).toBe(true);
    await agent.end('SIGTERM');
    await restarted(agent, 'failures');
    await agent.until(() => !isDisabled(), 'the webhook is enabled');
    const sent = announce(1);
    await agent.until(() => hasReacted(sent), 'an event has run its reaction');
  });

  it('stays disabled by command until it is enabled by command, across restarts', async () => {
    const agent = await begin({ WEBHOOK_REENABLE: 'always' });
    expect(await runVerb(agent, 'webhook', 'disable')).toMatchObject({ status: 0 });
    expect(platform.webhooks()[0]!.disabled).toBe(true);
    await agent.end('SIGKILL');
    await start(agent);
    await agent.until(() => agent.logged('webhook.stays_disabled').length > 1, 'the disabled webhook is reported');
    expect(platform.webhooks()[0]!.disabled).toBe(true);
    expect(await runVerb(agent, 'webhook', 'enable')).toMatchObject({ status: 0 });
    const sent = announce(1);
    await agent.until(() => hasReacted(sent), 'an event has run its reaction');
  });
});

describe('event relay over MQTT', () => {
  it('runs each reaction at the gateway once, even for events from its downtime', async () => {
    const broker = await Mosquitto.make();
    try {
      await broker.start();
      const sources = `sources:\n  broker: { mqtt: "mqtt://127.0.0.1:${broker.port}" }\n`;
      const relay = make();
      const to = { ...settings, WEBHOOK_TO: 'broker platform/events' };
      relay.write(platform.url, { env: to, tags: `${sources}tags: {}\n` });
      await start(relay);
      const gateway = make();
      const from = { WEBHOOK_FROM: 'broker platform/events', WEBHOOK_URL: '', WEBHOOK_LISTEN: '' };
      const env = { ...from, WEBHOOK_SECRET: webhook().secret, TECHNICAL_USER_ID: '5' };
      configure(gateway, env, `${sources}${TAGS}`);
      await gateway.start();
      // A subscription receives events only from its start.
      const first: number[] = [];
      await gateway.until(() => {
        first.push(...announce(1));
        return receiver.numbers().length > 0;
      }, 'the subscription is active');
      await gateway.end('SIGKILL');
      const sent = announce(10);
      await allDelivered(relay);
      const relayed = () => relay.metric('tagferry_events_relayed_total');
      await relay.until(async () => (await relayed()) >= first.length + sent.length, 'the broker has all events');
      await gateway.start();
      await gateway.until(() => hasReacted(sent), 'every event has run its reaction');
      expect(
        receiver
          .numbers()
          .filter((number) => sent.includes(number))
          .sort((a, b) => a - b),
      ).toEqual(sent);
      // Anyone can publish, but only the platform and the gateways know the secret.
      expect(gateway.output + relay.output).not.toContain(webhook().secret);
    } finally {
      await broker.dispose();
    }
  });
});
