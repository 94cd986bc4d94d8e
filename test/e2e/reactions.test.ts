// Requires: mosquitto
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectAsync } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { wholeLines } from '../whole-lines.ts';
import { AgentProcess } from './harness/agent-process.ts';
import {
  deliver,
  eventBody,
  type ListedEvent,
  listEvents,
  listening,
  Receiver,
  thresholdContent,
  webhookSettings,
} from './harness/events.ts';
import { Mosquitto } from './harness/mosquitto.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { runVerb } from './harness/verb.ts';

const TAG = '  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';
const HOUR_MS = 3_600_000;

let platform: Platform;
let receiver: Receiver;
let agent: AgentProcess;
let settings: { WEBHOOK_LISTEN: string; WEBHOOK_URL: string };

beforeEach(async () => {
  platform = await Platform.start();
  receiver = await Receiver.start();
  settings = await webhookSettings();
  agent = new AgentProcess(platform.url);
  // Retry delays are random: these are the shortest ones.
  agent.flags = ['--import', 'data:text/javascript,Math.random=()=>0'];
});
afterEach(async () => {
  await agent.dispose();
  await receiver.stop();
  await platform.stop();
});

/** Writes the configuration. `rules` are the members of each rule except `on`. */
function write(rules: string[], tags = '', env: Record<string, string> = {}): void {
  const lines = rules.map((rule) => `  - { on: threshold_reached, ${rule} }\n`).join('');
  agent.write(platform.url, {
    env: { ...settings, ...env },
    tags: tags || `tags:\n${TAG}`,
    reactions: `reactions:\n${lines}`,
  });
}

async function begin(environment?: NodeJS.ProcessEnv): Promise<void> {
  await agent.start(environment);
  await listening(agent, settings.WEBHOOK_URL);
}

interface Sent {
  value: number;
  key?: string;
  instrumentation?: number;
  agoMs?: number;
  type?: string;
}

/** Delivers an event, which must be accepted. */
async function send({ value, key = 'flow', instrumentation = 4711, agoMs = 0, type = 'high' }: Sent): Promise<void> {
  const content = thresholdContent(value, instrumentation);
  Object.assign(content.data as object, { key });
  Object.assign(content.threshold as object, { type });
  const { secret } = platform.webhooks()[0]!;
  expect(await deliver({ url: settings.WEBHOOK_URL, secret }, eventBody(content, Date.now() - agoMs))).toBe(204);
}

/** A command that runs a script in a shell, with the folder as `$0`. */
const shell = (script: string) => `run: [/bin/sh, -c, '${script}', "${agent.folder}"]`;
const lines = (file: string) => wholeLines(join(agent.folder, file));
const numbers = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

async function settled(what: (event: ListedEvent) => boolean = ({ state }) => state === 'done'): Promise<void> {
  await agent.until(async () => (await listEvents(agent)).every(what), 'every event has the expected state');
}

describe('reaction', () => {
  it('runs, posts, publishes, writes and logs with the data of its event', async () => {
    const broker = await Mosquitto.make();
    await broker.start();
    const client = await connectAsync(`mqtt://127.0.0.1:${broker.port}`);
    try {
      const published: string[] = [];
      client.on('message', (topic, payload) => published.push(`${topic} ${payload}`));
      await client.subscribeAsync('site/#', { qos: 1 });
      write(
        [
          `name: act, do: [${[
            `{ ${shell('cd $0; env > env; cat > in; echo >> ran')} }`,
            `{ post: "${receiver.url}/alarm", headers: { X-Site: north }, body: "flow {{content.data.value}}" }`,
            '{ publish: { to: broker, topic: "site/alarms/{{content.data.key}}", body: "{{content.data.value}}" } }',
            '{ write: { tag: VALVE-1, key: setpoint, value: "{{content.data.value}}" } }',
            '{ log: warn }',
          ].join(', ')}]`,
        ],
        `sources:\n  broker: { mqtt: "mqtt://127.0.0.1:${broker.port}" }\ntags:\n${TAG}` +
          '  VALVE-1: { asset: 882, values: { setpoint: { from: broker, topic: valve/state, write_to: site/valve, ' +
          'writable: { min: 0, max: 100, verify: false } } } }\n',
        { WRITES: 'on' },
      );
      await begin({ CLIENT_SECRET: CREDENTIALS.clientSecret });
      await send({ value: 25, key: 'in/let' });
      await settled();
      const event = JSON.parse(readFileSync(join(agent.folder, 'in'), 'utf8')) as object;
      expect(event).toMatchObject({ event_type: 'threshold_reached', content: { data: { value: 25, key: 'in/let' } } });
      const environment = lines('env');
      expect(environment).toContain('TAGFERRY_VALUE=25');
      expect(environment).toContain('TAGFERRY_REACTION=act');
      expect(environment.join()).not.toContain(CREDENTIALS.clientSecret);
      expect(receiver.requests).toMatchObject([{ path: '/alarm', body: 'flow 25', headers: { 'x-site': 'north' } }]);
      // A value in a topic cannot change the number of its levels.
      await agent.until(() => published.length === 2, 'the broker has both messages');
      expect(published.toSorted()[1]).toBe('site/valve 25');
      expect(published.toSorted()[0]).toMatch(/^site\/alarms\/[^/]+ 25$/);
      await expect.poll(() => agent.logged('reaction.log')).toHaveLength(1);
      // A value outside the range of the device is never sent, and never retried.
      await send({ value: 500 });
      await agent.until(() => agent.logged('write.rejected').length > 0, 'the write is rejected');
      await agent.until(() => published.length === 3, 'the broker has the second alarm');
      await settled(({ state }) => state === 'done' || state === 'dead');
      expect(published.filter((line) => line.startsWith('site/valve'))).toEqual(['site/valve 25']);
    } finally {
      await client.endAsync(true);
      await broker.dispose();
    }
  });

  it('runs only for events that match `if`, `cooldown` and `max_age`, and for any event on replay', async () => {
    const post = (path: string) => `do: [{ post: "${receiver.url}/${path}" }]`;
    write([
      `name: tagged, if: { tag: FT-101, data.value: { above: 20, below: 80 } }, ${post('tagged')}`,
      `name: listed, if: { data.key: [flow, level], threshold.type: low }, ${post('listed')}`,
      `name: cooled, if: { data.key: cooled }, cooldown: 1h, ${post('cooled')}`,
      `name: aged, if: { data.key: aged }, ${post('aged')}`,
      `name: ageless, if: { data.key: aged }, max_age: 0, ${post('ageless')}`,
    ]);
    await begin();
    for (const value of [20, 20.5, 79, 80]) await send({ value });
    await send({ value: 50, instrumentation: 4712 });
    await send({ value: 1, key: 'level', type: 'low' });
    await send({ value: 2, key: 'level', type: 'high' });
    await send({ value: 3, key: 'mass', type: 'low' });
    await send({ value: 100, key: 'cooled', instrumentation: 5001 });
    await settled();
    await send({ value: 101, key: 'cooled', instrumentation: 5001 });
    await send({ value: 102, key: 'cooled', instrumentation: 5002 });
    await send({ value: 103, key: 'aged', instrumentation: 5003 });
    await send({ value: 104, key: 'aged', instrumentation: 5004, agoMs: HOUR_MS });
    await agent.until(() => agent.logged('reaction.cooldown').length === 1, 'the reaction is skipped');
    await settled();
    await agent.end('SIGKILL');
    await begin();
    await send({ value: 105, key: 'cooled', instrumentation: 5001 });
    await agent.until(() => agent.logged('reaction.cooldown').length === 2, 'the reaction is skipped again');
    await settled();
    const received = (path: string) => receiver.numbers(`/${path}`).sort((a, b) => a - b);
    expect(received('tagged')).toEqual([20.5, 79]);
    expect(received('listed')).toEqual([1]);
    expect(received('cooled')).toEqual([100, 102]);
    expect(received('aged')).toEqual([103]);
    expect(received('ageless')).toEqual([103, 104]);
    await expect.poll(() => agent.logged('reaction.expired')).toMatchObject([{ reaction: 'aged' }]);
    const old = (await listEvents(agent)).find(
      ({ occurred_at }) => Date.parse(occurred_at) < Date.now() - HOUR_MS / 2,
    )!;
    expect(await runVerb(agent, 'events', 'replay', String(old.id))).toMatchObject({ status: 0 });
    await agent.until(() => received('aged').length === 2, 'the replay has run');
    expect(received('aged')).toEqual([103, 104]);
  });
});

describe('reaction interrupted by kill -9', () => {
  it('runs unfinished actions again, without completed ones and without processes of the previous run', async () => {
    const hang = 'echo $$ >> "$0/begun"; while [ ! -e "$0/go" ]; do sleep 0.05; done; echo >> "$0/ended"';
    write([
      `name: posts, if: { data.key: post }, do: [{ post: "${receiver.url}/first" }, { post: "${receiver.url}/second" }]`,
      `name: hangs, if: { data.key: hang }, do: [{ ${shell('echo >> "$0/before"')} }, { ${shell(hang)}, timeout: 10m }]`,
      `name: fails, if: { data.key: fail }, do: [{ ${shell('test -e "$0/tried" || { echo > "$0/tried"; exit 1; }')} }]`,
    ]);
    await begin();
    const posts = (path: string) => receiver.numbers(path).length;
    receiver.respond = (path) => (path === '/first' && posts(path) > 1 ? 204 : 500);
    await send({ value: 1, key: 'post' });
    await send({ value: 2, key: 'hang', instrumentation: 4712 });
    await send({ value: 3, key: 'fail', instrumentation: 4713 });
    await agent.until(() => posts('/first') === 2 && posts('/second') > 1, 'failed posts are retried');
    const isDone = ({ reaction }: Record<string, unknown>) => reaction === 'fails';
    await agent.until(() => agent.logged('reaction.done').some(isDone), 'the failed command is retried');
    const events = await listEvents(agent);
    const completed = async () => {
      const sheets = events.map(({ id }) => runVerb(agent, 'events', 'show', String(id), '--json'));
      const journals = (await Promise.all(sheets)).map(
        ({ stdout }) => JSON.parse(stdout).journal as { outcome: string }[],
      );
      return journals.flat().filter(({ outcome }) => outcome === 'done').length;
    };
    await agent.until(async () => (await completed()) === 3, 'the completed actions are on disk');
    await agent.until(() => lines('begun').length === 1, 'the command hangs');
    const before = posts('/second');
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(() => lines('begun').length > 1, 'the interrupted command has started again');
    await agent.until(() => posts('/second') > before, 'the failed post is retried');
    const stat = `/proc/${lines('begun')[0]}/stat`;
    expect(existsSync(stat) && !/\) [ZX] /.test(readFileSync(stat, 'utf8'))).toBe(false);
    writeFileSync(join(agent.folder, 'go'), '');
    receiver.respond = () => 204;
    await settled();
    expect(lines('ended')).toHaveLength(1);
    expect(lines('before')).toHaveLength(1);
    expect(posts('/first')).toBe(2);
  });

  it('is abandoned if its command kills the agent each time, and runs again on replay', async () => {
    // The parent process of the command is the agent.
    const kill = 'if [ $TAGFERRY_VALUE = 1 ] && [ ! -e "$0/go" ]; then kill -9 $PPID; sleep 60; fi';
    write([`name: act, do: [{ ${shell(`echo $TAGFERRY_VALUE >> "$0/ran"; ${kill}`)} }]`]);
    await begin();
    await send({ value: 1 });
    await agent.ended();
    platform.announce('threshold_reached', thresholdContent(2, 4712));
    const isDead = () => agent.logged('reaction.dead').length > 0;
    const starts = (value: string) => lines('ran').filter((line) => line === value).length;
    for (let restarts = 0; !isDead(); restarts++) {
      expect(restarts).toBeLessThan(20);
      agent.launch();
      let hasEnded = false;
      void agent.ended().then(() => {
        hasEnded = true;
      });
      await expect.poll(() => hasEnded || isDead()).toBe(true);
    }
    expect(agent.logged('reaction.dead')).toMatchObject([{ reaction: 'act' }]);
    expect(starts('1')).toBeGreaterThan(1);
    expect(starts('1')).toBeLessThanOrEqual(8);
    await agent.until(() => {
      platform.advance(5_000);
      return starts('2') > 0;
    }, 'the other event has run its reaction');
    const before = starts('1');
    let dead: ListedEvent | undefined;
    await agent.until(async () => {
      dead = (await listEvents(agent)).find(({ state }) => state === 'dead');
      return dead !== undefined;
    }, 'the event is dead');
    writeFileSync(join(agent.folder, 'go'), '');
    expect(await runVerb(agent, 'events', 'replay', String(dead!.id))).toMatchObject({ status: 0 });
    await settled();
    expect(starts('1')).toBe(before + 1);
  });
});

describe('receiver that never responds', () => {
  it('delays neither other rules nor other reactions to its events, and receives all events when it recovers', async () => {
    const silent = await Receiver.start();
    silent.respond = () => 0;
    const slow = await Receiver.start();
    slow.respond = () => 0;
    try {
      write([
        `name: silent, if: { data.key: [silent, both] }, do: [{ post: "${silent.url}/", timeout: 10m }]`,
        `name: slow, if: { data.key: slow }, do: [{ post: "${slow.url}/", timeout: 1s }]`,
        `name: alarm, if: { data.key: [alarm, both] }, do: [{ post: "${receiver.url}/" }]`,
      ]);
      await begin();
      // More than the reactions that can run concurrently, about one object and about many.
      for (const value of numbers(0, 30)) await send({ value, key: 'silent', instrumentation: 5_000 + value });
      for (const value of numbers(30, 5)) await send({ value, key: 'silent', instrumentation: 5_000 });
      for (const value of numbers(50, 2)) await send({ value, key: 'slow', instrumentation: 5_000 + value });
      await agent.until(() => silent.waiting > 1 && slow.requests.length > 0, 'both receivers have requests');
      for (const value of numbers(100, 5)) await send({ value, key: 'alarm', instrumentation: 5_000 });
      for (const value of numbers(200, 5)) await send({ value, key: 'both', instrumentation: 5_000 + value });
      const alarms = [...numbers(100, 5), ...numbers(200, 5)];
      await agent.until(() => receiver.requests.length === alarms.length, 'every alarm has run');
      expect(receiver.numbers().sort((a, b) => a - b)).toEqual(alarms);
      await agent.until(() => agent.logged('reaction.target_silent').length > 0, 'the target is reported');
      expect(await agent.status()).toMatchObject({
        silent_targets: [{ target: `post ${slow.url}`, reactions: ['slow'] }],
      });
      slow.requests.length = 0;
      slow.respond = () => 204;
      await agent.until(() => new Set(slow.numbers()).size === 2, 'the receiver has every event');
      await agent.until(() => agent.logged('reaction.target_restored').length > 0, 'the recovery is reported');
      const targets = async () => (await agent.status()).silent_targets as unknown[];
      await agent.until(async () => (await targets()).length === 0, 'no target is reported');
    } finally {
      await silent.stop();
      await slow.stop();
    }
  });
});

describe('rule on a local value', () => {
  it('runs once per crossing while the platform is unreachable, even if kill -9 follows the acknowledgement', async () => {
    const note = (word: string) => `[{ ${shell(`echo ${word} $TAGFERRY_VALUE >> "$0/ran"`)} }]`;
    const rule = (condition: string) => {
      const reactions = `reactions:\n  - { name: high, on: value, if: { tag: FT-101, key: flow, ${condition} }, do: ${note('raised')}, on_clear: ${note('cleared')} }\n`;
      agent.write(platform.url, { tags: `tags:\n${TAG}`, reactions });
    };
    rule('above: 80, clear_below: 75');
    const push = async (...values: number[]) => {
      for (const value of values) expect((await agent.push([{ tag: 'FT-101', key: 'flow', value }])).status).toBe(204);
    };
    await platform.fail('refuse');
    await agent.start();
    await push(79, 81, 90, 76, 74, 73);
    await agent.until(() => lines('ran').length === 2, 'both reactions have run');
    await settled();
    expect(lines('ran')).toEqual(['raised 81', 'cleared 74']);
    await push(82);
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(() => lines('ran').length > 2, 'the transition before the kill has run its reaction');
    await push(85, 76, 70, 71);
    await agent.until(() => lines('ran').at(-1) === 'cleared 70', 'the next transition has run its reaction');
    await settled();
    // Only a command that was running at the kill may have started twice.
    const once = lines('ran').filter((line, at, all) => line !== all[at - 1]);
    expect(once).toEqual(['raised 81', 'cleared 74', 'raised 82', 'cleared 70']);
    const types = (await listEvents(agent)).map(({ event_type }) => event_type).toReversed();
    expect(types).toEqual(['value_raised', 'value_cleared', 'value_raised', 'value_cleared']);
    const { stdout } = await runVerb(agent, 'reactions', 'test', 'high', '--value', '90', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ state: 'cleared', transition: 'raised' });
    // A changed rule starts over.
    rule('above: 50');
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    await push(60);
    await agent.until(() => lines('ran').at(-1) === 'raised 60', 'the changed rule has run its reaction');
    expect(platform.counts().stored).toBe(0);
  });
});
