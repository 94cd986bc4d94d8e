import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { findClientApplication, listApiSubscriptions } from '../../../src/platform/resources/connect-subscription.ts';
import { readDeliveries } from '../../../src/platform/resources/deliveries.ts';
import { Webhooks } from '../../../src/platform/resources/webhooks.ts';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { Session } from '../../../src/platform/session/session.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { until } from './session-bench.ts';
import { untilValid } from './until-valid.ts';

let sandbox: Sandbox;
let session: Session;
let client: PlatformClient;
let boundary: HttpBoundary;
let folder: string;

beforeEach(async () => {
  sandbox = new Sandbox({ apiKeyHeader: 'API-Key' });
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-sandbox-'));
  boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 8 }),
    clock: systemClock,
    userAgent: 'tagferry/test',
  });
  const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;
  const log = silentLogger();
  session = new Session({
    redactor: new Redactor(),
    boundary,
    baseUrl: sandbox.url,
    credentials: () => ({
      client: { clientId, clientSecret, clientAuth: 'body' },
      user: { username: technicalUsername, password: technicalPassword },
    }),
    file: new SessionFile(folder),
    clock: systemClock,
    log,
  });
  const apiKey = { header: 'API-Key', clientId };
  client = new PlatformClient({ boundary, baseUrl: sandbox.url, tokens: session, apiKey, clock: systemClock, log });
  await session.start(new AbortController().signal);
  await untilValid(session);
});

afterEach(async () => {
  await session.stop();
  await boundary.close();
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe('platform client with the sandbox', () => {
  it('renews its session by refresh, revokes replaced tokens, and leaves no valid token at shutdown', async () => {
    await session.renewNow();
    await until(() => sandbox.tokens.counts().alive === 1);
    expect(sandbox.tokens.list().map((token) => token.grant)).toEqual(['password', 'refresh_token']);
    await session.stop();
    expect(sandbox.tokens.counts()).toMatchObject({ issued: 2, alive: 0 });
  });

  it('recovers from a lost refresh response', async () => {
    sandbox.faults.add({ path: '/oauth/token', drop: 'after', times: 1 });
    expect(await session.renewNow()).toMatchObject({ state: 'valid', grant: 'password' });
  });

  it('posts values', async () => {
    const data = [{ timestamp: '2026-11-21T00:00:00.000Z', value: 1.5 }];
    const body = new TextEncoder().encode(JSON.stringify({ values: [{ key: 'flow', data }] }));
    const post = (asset: number) =>
      client.request({ method: 'POST', path: `/v1/assets/${asset}/values`, body, kind: 'live' });
    const answer = await post(881);
    expect(answer.status).toBe(204);
    expect(sandbox.values.last(881, 'flow')).toMatchObject({ value: 1.5 });
    const refused = await post(920);
    expect(refused.status).toBe(404);
  });

  it('registers, changes and deletes a webhook', async () => {
    const application = await findClientApplication(client, SANDBOX_CREDENTIALS.clientApplication);
    expect(await findClientApplication(client, undefined)).toMatchObject({ id: application.id });
    const webhooks = new Webhooks(client, application.id);
    const url = 'http://127.0.0.1:9/hook';
    const { id, secret } = await webhooks.create({ url, event_types: ['asset_appeared'] });
    expect(secret!.length).toBeGreaterThan(8);
    expect(await webhooks.read(id)).toMatchObject({ id, url, disabled: false });
    await webhooks.setDisabled(id, true);
    expect((await Array.fromAsync(webhooks.list())).find((one) => one.id === id)).toMatchObject({ disabled: true });
    expect(await webhooks.resetSecret(id)).not.toBe(secret);
    expect(await Array.fromAsync(readDeliveries(client, application.id, id, { status: 'failed' }))).toMatchObject([
      { records: [] },
    ]);
    await webhooks.resend(id, []).catch((error) => expect(error.status).toBe(400));
    await webhooks.delete(id);
    await expect(webhooks.read(id)).rejects.toMatchObject({ status: 404 });
  });

  it('reads the quota', async () => {
    await fetch(`${sandbox.url}/sandbox/objects/client_applications/3`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ call_quota: 1000, byte_quota: 5000 }),
    });
    const [subscription] = await Array.fromAsync(listApiSubscriptions(client));
    expect(subscription).toMatchObject({ calls: { quota: 1000 }, payload: { quota: 5000, used: 0 } });
  });
});
