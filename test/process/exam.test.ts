import { afterEach, beforeEach, expect, it } from 'vitest';
import { examineReceiver, Sandbox } from '../../src/sandbox/index.ts';
import { AgentProcess } from './agent-process.ts';
import { freePort } from './event-plant.ts';

/** The product itself under the exams that the sandbox holds for everybody. */
let sandbox: Sandbox;
let agent: AgentProcess | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent?.dispose();
  agent = undefined;
  await sandbox.stop();
});

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';

async function startAgent(env: Record<string, string>): Promise<AgentProcess> {
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env });
  await agent.start();
  return agent;
}

it("gives the daemon's listener a full mark", async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/webhook`;
  const agent = await startAgent({ WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: url });
  await agent.until(() => sandbox.webhooks().length === 1, 'the webhook is registered');
  const marks = await examineReceiver({ url, secret: sandbox.webhooks()[0]!.secret });
  expect(marks.filter(({ state }) => state !== 'held')).toEqual([]);
  expect(marks.length).toBeGreaterThan(25);
});

it("gives the daemon's client a full mark after a drill of all that happens in the field", async () => {
  const agent = await startAgent({});
  sandbox.clientExam.begin();
  let serial = 0;
  let isOver = false;
  const pushing = (async () => {
    while (!isOver) {
      await agent.push([{ tag: 'FT-101', key: 'flow', value: serial, timestamp: 1_790_000_000_000 + serial++ }]);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  const missed = await sandbox.provokeClient();
  isOver = true;
  await pushing;
  await agent.until(() => sandbox.values.counts(881).stored === serial, 'every value has arrived');
  // What was replaced is revoked, or its time to be is over.
  await agent.until(() => sandbox.tokens.counts().alive === 1, 'one token lives');
  expect(missed).toEqual([]);
  const marks = sandbox.clientExam.marks();
  expect(marks.filter(({ state }) => state === 'broken')).toEqual([]);
  const unseen = marks.filter(({ state }) => state === 'unseen').map(({ id }) => id);
  // Pages of people and the rate are no part of this client's day.
  expect(unseen).toEqual(['state', 'pkce', 'minute']);
}, 180_000);
