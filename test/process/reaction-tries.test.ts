import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { openDatabase } from '../../src/base/database.ts';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Inbox } from '../../src/webhook/inbox.ts';
import { sign } from '../../src/webhook/signature.ts';
import { wholeLines } from '../whole-lines.ts';
import { GatewayProcess } from './gateway-process.ts';

const TAGS = `tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }
`;
const HOUR = 3_600_000;

let sandbox: Sandbox;
let agent: GatewayProcess;
let url: string;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new GatewayProcess(sandbox.url);
  url = `http://127.0.0.1:${await freePort()}/hook`;
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** A reaction for each script, run by a shell that has the folder as `$0`: each of them leaves lines in files there. */
function write(scripts: string[], env: Record<string, string> = {}, more = ''): void {
  const actions = scripts.map((script) => `      - run: [/bin/sh, -c, '${script}', "${agent.folder}"]\n`).join('');
  agent.write(sandbox.url, {
    tags: TAGS,
    reactions: `reactions:\n  - name: act\n    on: threshold_reached\n${more}    do:\n${actions}`,
    env: { WEBHOOK_LISTEN: new URL(url).host, WEBHOOK_URL: url, ...env },
  });
}

async function start(): Promise<void> {
  const loaded = pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href;
  await agent.start({ NODE_OPTIONS: `--import=${loaded}`, MOVED_CLOCK: join(agent.folder, 'moved') });
  // Not when the platform has it: the agent has yet to read its secret then, and answers 503.
  await agent.registered();
}

const moveClock = (ms: number) => writeFileSync(join(agent.folder, 'moved'), String(ms));
const lines = (file: string) => wholeLines(join(agent.folder, file));

/** Delivers an event as the platform does. */
async function deliver(value: number, agoMs = 0, instrumentation = 4711): Promise<number> {
  const body = JSON.stringify({
    event_type: 'threshold_reached',
    occurred_at: new Date(Date.now() - agoMs).toISOString(),
    content: {
      asset: { id: 881 },
      instrumentation: { id: instrumentation },
      data: { value },
      threshold: { type: 'high' },
    },
  });
  const { secret } = sandbox.webhooks()[0]!;
  const signature = sign(Buffer.from(body), secret);
  return (await fetch(url, { method: 'POST', body, headers: { 'X-Hub-Signature-Sha256': signature } })).status;
}

/** The inbox of a daemon that does not run. */
function withInbox<Result>(work: (inbox: Inbox, database: ReturnType<typeof openDatabase>) => Result): Result {
  const database = openDatabase(join(agent.state, 'inbox.db'));
  try {
    const inbox = Inbox.open(database, systemClock, 'of the test');
    return work(inbox, database);
  } finally {
    database.close();
  }
}

const NOTE = 'echo "$TAGFERRY_VALUE" >> "$0/ran"';

describe('a command that ends the gateway', () => {
  it('is started eight times in all, other events go first meanwhile, and a replay begins anew', async () => {
    // Its parent is the daemon.
    write([`${NOTE}; if [ "$TAGFERRY_VALUE" = 1 ] && [ ! -e "$0/go" ]; then kill -9 $PPID; sleep 60; fi`]);
    await start();
    // The other comes while the first is under way, or just after the gateway has gone: then it is sent again.
    await deliver(1);
    await agent.ended();
    await start();
    let starts = 2;
    // A platform sends again what no gateway took.
    for (; (await deliver(2, 0, 4712).catch(() => 0)) !== 204; starts++) {
      await agent.ended();
      await start();
    }
    const before = lines('ran').length;
    for (; starts <= 8; starts++) {
      await agent.ended();
      await start();
    }
    await agent.until(() => agent.logged('reaction.dead').length > 0, 'the action is given up');
    expect(lines('ran').filter((line) => line === '1')).toHaveLength(8);
    expect(lines('ran').filter((line) => line === '2')).toEqual(['2']);
    // After the start under way when it came, and at most one more.
    expect(lines('ran').indexOf('2')).toBeLessThanOrEqual(before + 1);
    expect(agent.logged('reaction.dead')[0]).toMatchObject({ reaction: 'act', tries: 8 });
    writeFileSync(join(agent.folder, 'go'), '');
    // Refused while the event is still under way: the line stands in the log before the inbox knows.
    const replayed = () => agent.call(join(agent.state, 'control.sock'), '/events/replay', { body: '{"id":1}' });
    await agent.until(async () => (await replayed()).status === 200, 'the replay is taken');
    await agent.until(() => lines('ran').filter((line) => line === '1').length === 9, 'the replay has run');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(withInbox((inbox) => inbox.show(1))).toMatchObject({ state: 'done' });
  });
});

describe('an action that is done', () => {
  it('is not done again after a restart, however much was tried beside it', async () => {
    write(['echo done >> "$0/first"', 'echo tried >> "$0/second"; test -e "$0/go"']);
    await start();
    await deliver(1);
    await agent.until(() => lines('second').length === 1, 'the second action has failed');
    await agent.end('SIGTERM');
    const attempt = { reaction: 'act', action: 'run x', outcome: 'failed', durationMs: 1, atMs: 1 };
    withInbox((inbox) => {
      for (let i = 0; i < 250; i++) inbox.record(1, undefined, attempt);
    });
    writeFileSync(join(agent.folder, 'go'), '');
    await start();
    await agent.until(() => agent.logged('reaction.done').length === 1, 'the reaction is done');
    expect(lines('first')).toEqual(['done']);
    expect(lines('second').length).toBeGreaterThan(1);
  });
});

describe('a row of the inbox that was damaged', () => {
  it('does not run; the platform is asked for its event again, which then runs', async () => {
    write([NOTE, 'test -e "$0/go"'], { WEBHOOK_POLL: '1s' });
    await start();
    const content = {
      asset: { id: 881 },
      instrumentation: { id: 4711 },
      data: { value: 7 },
      threshold: { type: 'high' },
    };
    sandbox.announcer.announce({ type: 'threshold_reached', audience: () => true, content: () => content });
    await agent.until(() => lines('ran').length === 1, 'the event has come');
    // Its delivery is known by now, not only the event.
    const passes = () => agent.logged('webhook.caught_up').length;
    await agent.call(join(agent.state, 'control.sock'), '/events/catch-up', { body: '{}' });
    await agent.end('SIGTERM');
    withInbox((_, database) =>
      database.prepare(`UPDATE inbox_event SET payload = replace(payload, 'high', 'hugh')`).run(),
    );
    writeFileSync(join(agent.folder, 'go'), '');
    const before = passes();
    await start();
    await agent.until(() => agent.logged('reaction.done').length === 1, 'the event has come again, and has run');
    expect(passes()).toBeGreaterThan(before);
    await agent.end('SIGTERM');
    const states = withInbox((inbox) => inbox.list().map(({ state }) => state));
    expect(states).toEqual(['done', 'dead']);
    expect(lines('ran')).toEqual(['7', '7']);
  });
});

describe('a wall clock that is wrong', () => {
  it.each([
    ['a quarter of an hour fast', 15 * 60_000],
    ['a week slow', -7 * 24 * HOUR],
  ])('%s: the event of a moment ago runs, that of an hour ago does not', async (_, movedMs) => {
    moveClock(movedMs);
    write([NOTE], {}, '    max_age: 10m\n');
    await start();
    expect([await deliver(1, 5_000), await deliver(2, HOUR, 4712)]).toEqual([204, 204]);
    await agent.until(() => agent.logged('reaction.expired').length === 1, 'the old one is only logged');
    await agent.until(() => lines('ran').length === 1, 'the other has run');
    expect(lines('ran')).toEqual(['1']);
    // What waits in the inbox at a start meets the same judgement, before the platform was asked for anything.
    await agent.end('SIGKILL');
    await start();
    expect(await deliver(3, HOUR, 4713)).toBe(204);
    await agent.until(() => agent.logged('reaction.expired').length === 2, 'so after a start');
    expect(lines('ran')).toEqual(['1']);
  });

  it('steps back by five hours: a retry comes all the same', async () => {
    write([`${NOTE}; test -e "$0/go"`]);
    await start();
    await deliver(1);
    const isFailed = async () => {
      const { text } = await agent.call(join(agent.state, 'control.sock'), '/events/show', { body: '{"id":1}' });
      return text.includes('"state":"failed"');
    };
    await agent.until(isFailed, 'it has failed once, and its retry is set');
    moveClock(-5 * HOUR);
    writeFileSync(join(agent.folder, 'go'), '');
    await agent.until(() => lines('ran').length > 1, 'it is tried again');
    await agent.until(() => agent.logged('reaction.done').length === 1, 'it is done');
  });
});
