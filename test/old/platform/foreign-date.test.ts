import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { SIGNATURE_SHA256_HEADER } from '../../../src/contract/webhooks.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Portal } from '../../e2e/harness/portal.ts';
import { wholeLines } from '../../whole-lines.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';
const MINUTE = 60_000;
const DAY = 1440 * MINUTE;

let sandbox: Sandbox;
let portal: Portal;
let agent: AgentProcess;
let url: string;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  portal = new Portal(sandbox.url);
  await portal.start();
  url = `http://127.0.0.1:${await freePort()}/hook`;
  agent = new AgentProcess(portal.url);
  const run = `[/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> "$0/ran"', "${agent.folder}"]`;
  agent.write(portal.url, {
    tags: TAGS,
    reactions: `reactions:\n  - { name: act, on: threshold_reached, max_age: 10m, do: [{ run: ${run} }] }\n`,
    env: { WEBHOOK_LISTEN: new URL(url).host, WEBHOOK_URL: url },
  });
  await agent.start();
  await agent.registered();
});
afterEach(async () => {
  await agent.dispose();
  await portal.stop();
  await sandbox.stop();
});

const ran = () => wholeLines(join(agent.folder, 'ran'));

async function deliver(value: number, agoMs: number, instrumentation: number): Promise<void> {
  const body = JSON.stringify({
    event_type: 'threshold_reached',
    occurred_at: new Date(Date.now() - agoMs).toISOString(),
    content: {
      asset: { id: 881 },
      instrumentation: { id: instrumentation },
      data: { key: 'flow', timestamp: new Date().toISOString(), value },
      threshold: { type: 'high', value: 50 },
    },
  });
  const { secret } = sandbox.webhooks()[0]!;
  const headers = { 'Content-Type': 'application/json', [SIGNATURE_SHA256_HEADER]: sign(Buffer.from(body), secret) };
  expect((await fetch(url, { method: 'POST', body, headers })).status).toBe(204);
}

/** Responds to a post in place of the platform, with a date that is `aheadMs` from now. */
async function answerOnce(status: number, aheadMs: number, type: string, body: string): Promise<void> {
  let answered = 0;
  portal.answer = (_request, response: ServerResponse) => {
    answered++;
    portal.answer = undefined;
    const date = new Date(Date.now() + aheadMs).toUTCString();
    response.writeHead(status, { date, 'content-type': type }).end(body);
  };
  await agent.push([{ tag: 'FT-101', key: 'flow', value: 1, timestamp: Date.now() }]);
  await agent.until(() => answered > 0, 'an external response was sent');
}

const FOREIGN: [string, number, string, string][] = [
  ['a 503 page', 503, 'text/html', '<html>Maintenance</html>'],
  ['a 200 page', 200, 'text/html', '<html>Sign in</html>'],
  ['a single 200 in JSON', 200, 'application/json', '{}'],
];

describe('incorrect date in a response', () => {
  it.each(FOREIGN)(
    'does not expire a recent alarm if it is ten years ahead with %s',
    async (_name, status, type, body) => {
      await answerOnce(status, 10 * 365 * DAY, type, body);
      await deliver(1, MINUTE, 4711);
      await agent.until(
        () => agent.logged('reaction.done').length > 0 || agent.logged('reaction.expired').length > 0,
        'judged',
      );
      expect(ran()).toEqual(['1']);
    },
  );

  it.each(FOREIGN)(
    'does not trigger an old alarm if it is one day behind with %s, and the log names the clock used',
    async (_n, status, type, body) => {
      await answerOnce(status, -DAY, type, body);
      await deliver(2, 60 * MINUTE, 4711);
      await agent.until(
        () => agent.logged('reaction.done').length > 0 || agent.logged('reaction.expired').length > 0,
        'judged',
      );
      expect(agent.logged('reaction.expired')).toMatchObject([{ clock: 'platform', ageMs: expect.any(Number) }]);
      expect(ran()).toEqual([]);
    },
  );

  it('does not hide an event with a future timestamp', async () => {
    await deliver(3, -60 * MINUTE, 4711);
    await agent.until(() => agent.logged('reaction.done').length > 0, 'the reaction has run');
    expect(agent.logged('reaction.ahead')).toMatchObject([{ clock: 'platform' }]);
  });
});
