import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { wholeLines } from '../../whole-lines.ts';

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

/**
 * One reaction per script, run by a shell with the folder as `$0`. Each script writes lines to files in that folder.
 */
function write(scripts: string[], env: Record<string, string> = {}, more = '', name = 'act'): void {
  const actions = scripts.map((script) => `      - run: [/bin/sh, -c, '${script}', "${agent.folder}"]\n`).join('');
  agent.write(sandbox.url, {
    tags: TAGS,
    reactions: `reactions:\n  - name: ${name}\n    on: threshold_reached\n${more}    do:\n${actions}`,
    env: { WEBHOOK_LISTEN: new URL(url).host, WEBHOOK_URL: url, ...env },
  });
}

async function start(): Promise<void> {
  const loaded = pathToFileURL(join(import.meta.dirname, '../agent/moved-clock.mjs')).href;
  await agent.start({ NODE_OPTIONS: `--import=${loaded}`, MOVED_CLOCK: join(agent.folder, 'moved') });
  // The webhook on the platform is not sufficient: until the agent has read its secret, it responds 503.
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

/** Inbox of a stopped agent. */
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

describe('command that kills the gateway', () => {
  it('is started at most eight times, after other events, until a replay resets the count', async () => {
    // Its parent process is the agent.
    write([`${NOTE}; if [ "$TAGFERRY_VALUE" = 1 ] && [ ! -e "$0/go" ]; then kill -9 $PPID; sleep 60; fi`]);
    await start();
    // The other event arrives during the first one, or just after the gateway exits; then it is sent again.
    await deliver(1);
    await agent.ended();
    await start();
    let starts = 2;
    // The platform repeats deliveries that the gateway did not accept.
    for (; (await deliver(2, 0, 4712).catch(() => 0)) !== 204; starts++) {
      await agent.ended();
      await start();
    }
    const before = lines('ran').length;
    for (; starts <= 8; starts++) {
      await agent.ended();
      await start();
    }
    await agent.until(() => agent.logged('reaction.dead').length > 0, 'the action is abandoned');
    expect(lines('ran').filter((line) => line === '1')).toHaveLength(8);
    expect(lines('ran').filter((line) => line === '2')).toEqual(['2']);
    // Event 2 ran after the command start that was in progress when it arrived, and after at most one more.
    expect(lines('ran').indexOf('2')).toBeLessThanOrEqual(before + 1);
    expect(agent.logged('reaction.dead')[0]).toMatchObject({ reaction: 'act', tries: 8 });
    writeFileSync(join(agent.folder, 'go'), '');
    // The replay is rejected while the event is pending: the log line precedes the inbox update.
    const replayed = () => agent.call(join(agent.state, 'control.sock'), '/events/replay', { body: '{"id":1}' });
    await agent.until(async () => (await replayed()).status === 200, 'the replay is accepted');
    await agent.until(() => lines('ran').filter((line) => line === '1').length === 9, 'the replay has run');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(withInbox((inbox) => inbox.show(1))).toMatchObject({ state: 'done' });
  });
});

describe('completed action', () => {
  it('is not repeated after restarts while other actions for the event are retried', async () => {
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
    await agent.until(() => agent.logged('reaction.done').length === 1, 'the reaction is completed');
    expect(lines('first')).toEqual(['done']);
    expect(lines('second').length).toBeGreaterThan(1);
  });
});

describe('damaged inbox row', () => {
  it('triggers no reaction until the event is fetched again from the platform', async () => {
    write([NOTE, 'test -e "$0/go"'], { WEBHOOK_POLL: '1s' });
    await start();
    const content = {
      asset: { id: 881 },
      instrumentation: { id: 4711 },
      data: { value: 7 },
      threshold: { type: 'high' },
    };
    sandbox.announcer.announce({ type: 'threshold_reached', audience: () => true, content: () => content });
    await agent.until(() => lines('ran').length === 1, 'the event has arrived');
    // Now the delivery is known, not only the event.
    const passes = () => agent.logged('webhook.caught_up').length;
    await agent.call(join(agent.state, 'control.sock'), '/events/catch-up', { body: '{}' });
    await agent.end('SIGTERM');
    withInbox((_, database) =>
      database.prepare(`UPDATE inbox_event SET payload = replace(payload, 'high', 'hugh')`).run(),
    );
    writeFileSync(join(agent.folder, 'go'), '');
    const before = passes();
    await start();
    await agent.until(() => agent.logged('reaction.done').length === 1, 'the event has arrived again and has run');
    expect(passes()).toBeGreaterThan(before);
    await agent.end('SIGTERM');
    const states = withInbox((inbox) => inbox.list().map(({ state }) => state));
    expect(states).toEqual(['done', 'dead']);
    expect(lines('ran')).toEqual(['7', '7']);
  });
});

describe('incorrect wall clock', () => {
  it.each([
    ['15 minutes fast', 15 * 60_000],
    ['a week slow', -7 * 24 * HOUR],
  ])('that is %s allows a recent event to run, but not an event from an hour ago', async (_, movedMs) => {
    moveClock(movedMs);
    write([NOTE], {}, '    max_age: 10m\n');
    await start();
    expect([await deliver(1, 5_000), await deliver(2, HOUR, 4712)]).toEqual([204, 204]);
    await agent.until(() => agent.logged('reaction.expired').length === 1, 'the old event is only logged');
    await agent.until(() => lines('ran').length === 1, 'the other event has run');
    expect(lines('ran')).toEqual(['1']);
    // Events in the inbox at startup follow the same rule before any platform request.
    await agent.end('SIGKILL');
    await start();
    expect(await deliver(3, HOUR, 4713)).toBe(204);
    await agent.until(() => agent.logged('reaction.expired').length === 2, 'the same applies after a start');
    expect(lines('ran')).toEqual(['1']);
  });

  it('does not delay a retry if set back by five hours', async () => {
    write([`${NOTE}; test -e "$0/go"`]);
    await start();
    await deliver(1);
    const isFailed = async () => {
      const { text } = await agent.call(join(agent.state, 'control.sock'), '/events/show', { body: '{"id":1}' });
      return text.includes('"state":"failed"');
    };
    await agent.until(isFailed, 'the action has failed once, and its retry is scheduled');
    moveClock(-5 * HOUR);
    writeFileSync(join(agent.folder, 'go'), '');
    await agent.until(() => lines('ran').length > 1, 'the action is retried');
    await agent.until(() => agent.logged('reaction.done').length === 1, 'it is done');
  });
});

describe('event with a failed command', () => {
  it('becomes dead after a restart if its reaction was removed from reactions.yaml', async () => {
    write(['exit 1']);
    await start();
    await deliver(1);
    await agent.until(() => agent.logged('reaction.failed').length > 0, 'the command has failed');
    await agent.end('SIGTERM');
    write(['true'], {}, '    if: { threshold.type: low }\n', 'other');
    await start();
    await agent.until(() => agent.logged('reaction.dead').length > 0, 'the action is abandoned');
    await agent.end('SIGTERM');
    expect(withInbox((inbox) => inbox.show(1))).toMatchObject({ state: 'dead' });
    expect(agent.logged('reaction.dead')).toMatchObject([{ reaction: 'act', error: expect.stringMatching(/removed/) }]);
  });
});
