import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { examineReceiver, Sandbox } from '../../src/sandbox/index.ts';
import { Account, signInOnPage } from '../commands/person-browser.ts';
import { runVerb } from '../commands/verb-run.ts';
import { AgentProcess } from './agent-process.ts';

/** The product itself under the exams that the sandbox holds for everybody. */
let sandbox: Sandbox;
let agent: AgentProcess | undefined;
let account: Account | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent?.dispose();
  agent = undefined;
  account?.dispose();
  account = undefined;
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
  await agent.registered();
  const marks = await examineReceiver({ url, secret: sandbox.webhooks()[0]!.secret });
  expect(marks.filter(({ state }) => state !== 'held')).toEqual([]);
  expect(marks.length).toBeGreaterThan(25);
});

it('gives the client a full mark after a drill of all that happens in the field, and at a sign-in', async () => {
  const agent = await startAgent({});
  // A minute's rest takes seconds when the platform's minute is nearly over.
  sandbox.requests.onHappened(({ text }) => {
    const intoMinuteMs = sandbox.clock.wallMs() % 60_000;
    if (/for this minute$/.test(text) && intoMinuteMs < 55_000) sandbox.clock.advance(55_000 - intoMinuteMs);
  });
  let serial = 0;
  let isOver = false;
  const pushing = (async () => {
    while (!isOver) {
      await agent.push([{ tag: 'FT-101', key: 'flow', value: serial, timestamp: 1_790_000_000_000 + serial++ }]);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  pushing.catch(() => {});
  const signingIn = personSignsIn();
  const exam = runVerb(['sandbox', 'exam', '--client', '--provoke', '--sign-in', '--url', sandbox.url], {}, 240_000);
  const [{ status, stdout, stderr }, person] = await Promise.all([exam, signingIn]);
  isOver = true;
  await pushing;
  expect(person).toEqual({ foreign: 400, own: 200, ended: 0 });
  expect(stdout).not.toContain('Never met');
  expect(stdout).toMatch(/\n(\d+) of \1 requirements are met\.\n$/);
  expect(stderr).toContain('exam: a person signs in');
  expect(status).toBe(0);
  await agent.until(() => sandbox.values.counts(881).stored === serial, 'every value has arrived');
  // What was replaced is revoked, or its time to be is over: the daemon's lives, and the person's.
  await agent.until(() => sandbox.tokens.counts().alive === 2, 'two tokens live');
}, 300_000);

it('tells every step of a drill, those too that were over before anybody looked', async () => {
  const views = [
    { over: false, steps: [] },
    { over: false, steps: ['one', 'two'] },
    { over: true, steps: ['one', 'two', 'three'] },
  ];
  const platform = createServer((request, response) => {
    request.resume();
    if (request.method !== 'GET') return void response.writeHead(204).end();
    const drill = { ...views[0], missed: [] };
    if (views.length > 1) views.shift();
    response
      .writeHead(200, { 'Content-Type': 'application/json' })
      .end(JSON.stringify({ running: true, drill, marks: [] }));
  });
  await new Promise<void>((resolve) => platform.listen(0, '127.0.0.1', resolve));
  try {
    const url = `http://127.0.0.1:${(platform.address() as AddressInfo).port}`;
    const { stderr } = await runVerb(['sandbox', 'exam', '--client', '--provoke', '--url', url]);
    expect(stderr).toBe('exam: one\nexam: two\nexam: three\n');
  } finally {
    platform.closeAllConnections();
    platform.close();
  }
});

/** `tagferry login`, and a browser that the drill sends back wrongly the first time. */
async function personSignsIn(): Promise<{ foreign: number; own: number; ended: number | null }> {
  account = new Account(sandbox);
  await new Promise<void>((resolve) => {
    sandbox.requests.onHappened(({ text }) => text.startsWith('exam: a person signs in') && resolve());
  });
  const login = account.login();
  try {
    const address = await login.address();
    const foreign = (await fetch(await signInOnPage(address))).status;
    const own = (await fetch(await signInOnPage(address))).status;
    return { foreign, own, ended: await login.ended() };
  } finally {
    login.child.kill('SIGKILL');
  }
}
