/**
 * The demo's story, act by act. Each act causes something, waits until it can be seen at the other end, and says so. What
 * never comes ends the story with `MissingStepError`; the count at the end is taken all the same.
 */

import { existsSync, readFileSync } from 'node:fs';
import { counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { SANDBOX_CREDENTIALS, type Sandbox } from '../../sandbox/sandbox.ts';
import type { AgentChild } from './agent-child.ts';
import type { AgentPlace } from './agent-files.ts';
import { type Count, countAtPlatform } from './count.ts';
import { DEMO_TAGS, FLOW_LIMIT, GATEWAY_ASSET, type SimulatedPlant } from './plant.ts';
import type { Pusher } from './pusher.ts';
import { count, type Stage } from './stage.ts';
import { shouldReturn, type Timetable } from './timetable.ts';
import type { Watch } from './watch.ts';

/** Something that the demo promises did not come within its time. */
class MissingStepError extends TagferryError {}

export interface StoryParts {
  stage: Stage;
  sandbox: Sandbox;
  agent: AgentChild;
  pusher: Pusher;
  plant: SimulatedPlant;
  watch: Watch;
  place: AgentPlace;
  clock: Clock;
  timetable: Timetable;
  startedMs: number;
  /** Ctrl-C, or the agent ended by itself. */
  signal: AbortSignal;
}

const LOOK_MS = 50;
/** The tag whose permission is taken. */
const TAKEN = DEMO_TAGS.find(({ name }) => name === 'TT-101')!;

export class Story {
  readonly #parts: StoryParts;
  readonly #endMs: number;

  constructor(parts: StoryParts) {
    this.#parts = parts;
    this.#endMs = parts.startedMs + parts.timetable.wholeMs - parts.timetable.stopMs;
  }

  /** Everything up to the moment at which only the count is left. Rejects with `MissingStepError`, or the signal's reason. */
  async play(): Promise<void> {
    this.#followPlatform();
    await this.#begin();
    await this.#flow();
    await this.#outage();
    await this.#threshold();
    await this.#permission();
    await this.#renewal();
    await this.#settle();
  }

  count(): Count {
    return countAtPlatform(this.#parts.sandbox, this.#parts.pusher);
  }

  /** What the platform sees, said when it sees it. */
  #followPlatform(): void {
    const { sandbox, stage } = this.#parts;
    sandbox.onDelivery(({ delivery, answer }) => {
      stage.say('news', `the platform sends ${delivery.eventType} to the webhook: answered ${answer}`);
    });
    sandbox.requests.onRequest(({ path, status }) => {
      if (path !== '/oauth/token' || status !== 200) return;
      const token = sandbox.tokens.list().at(-1);
      if (!token) return;
      const life = Math.round((token.expiresMs - token.createdMs) / 1000);
      if (token.grant === 'password') {
        stage.say('step', `login as ${SANDBOX_CREDENTIALS.technicalUsername}: a token for ${life} s`);
      } else stage.say('step', `the token is renewed by its refresh token: a new one for ${life} s`);
    });
  }

  async #begin(): Promise<void> {
    const { sandbox, agent, stage } = this.#parts;
    stage.say('news', `the platform listens on ${sandbox.url} (a sandbox)`);
    agent.start();
    stage.say('news', `the agent starts as process ${agent.pid}`);
    await this.#until('the agent signed in', () => sandbox.tokens.counts().issued > 0);
    await this.#until('the agent became ready', () => agent.isReady());
    await this.#until('the webhook was registered', () => sandbox.webhooks().length > 0);
    stage.say('step', 'its webhook is registered; it takes values in');
  }

  async #flow(): Promise<void> {
    const { sandbox, pusher, watch, stage, timetable } = this.#parts;
    pusher.start();
    watch.start();
    stage.say('news', `the plant pushes ${DEMO_TAGS.length} tags, 5 times a second each`);
    await this.#until('values arrived at the platform', () => sandbox.values.counts().stored > 0);
    await this.#pause(timetable.calmMs);
    await this.#until('the machine was read', () => sandbox.values.counts(GATEWAY_ASSET).stored > 0);
    const machine = count(sandbox.values.counts(GATEWAY_ASSET).stored);
    stage.say('step', `values flow, ${watch.rate} a second; ${machine} readings of this machine among them`);
  }

  async #outage(): Promise<void> {
    const { sandbox, pusher, watch, stage, timetable, clock, agent } = this.#parts;
    const from = pusher.pushes;
    await sandbox.goOffline('refuse');
    const goneMs = clock.monotonicMs();
    watch.away = true;
    stage.say('news', 'the platform goes away: connections are refused');
    await this.#until('the agent noticed', async () => (await agent.status())?.uplink.state === 'away');
    stage.say('step', 'the agent has noticed; it goes on taking values in, and keeps trying');
    await this.#until('the buffer grew', async () => {
      const status = await agent.status();
      const { attempts: failed = 0, next_try_in_seconds: nextIn = Number.POSITIVE_INFINITY } =
        status?.uplink.away ?? {};
      const tries = { failed, nextInMs: nextIn * 1000 };
      return shouldReturn(timetable, clock.monotonicMs() - goneMs, tries) && (status?.buffer.values ?? 0) > 0;
    });
    const status = await agent.status();
    const to = pusher.pushes;
    const left = () => this.#missing(from, to);
    const away = ((clock.monotonicMs() - goneMs) / 1000).toFixed(1);
    const { values = 0 } = status?.buffer ?? {};
    const { attempts = 0 } = status?.uplink.away ?? {};
    await sandbox.goOnline();
    stage.say('step', `${count(values)} values on disk after ${away} s and ${attempts} tries; the platform returns`);
    await this.#until('the agent noticed the return', async () => (await agent.status())?.uplink.state === 'online');
    watch.away = false;
    // Every request of the outage has its answer by now, so this is what has to arrive.
    const total = DEMO_TAGS.length * pusher.valuesOf(0, { acknowledged: true, from, to }).length;
    watch.drain = { total, left: () => Math.min(total, left()) };
    stage.say('step', 'the agent has found it by itself; the backlog drains');
    await this.#until('the backlog was delivered', () => left() === 0);
    stage.say('step', `all ${count(total)} values of the outage are delivered, none missing`);
    watch.drain = undefined;
  }

  async #threshold(): Promise<void> {
    const { sandbox, plant, stage, clock, place } = this.#parts;
    const tag = DEMO_TAGS[0]!;
    const { key, unit, instrumentation } = tag;
    sandbox.setThreshold({ instrumentation, type: 'high', value: FLOW_LIMIT, key, unit });
    plant.surge(clock.monotonicMs());
    const surgedMs = clock.monotonicMs();
    stage.say('news', `${tag.name} has a limit of ${FLOW_LIMIT} m³/h on the platform, and its flow surges`);
    await this.#until('the threshold event was answered', () =>
      sandbox.deliveries().some((one) => one.eventType === 'threshold_reached' && one.status === 'delivered'),
    );
    await this.#until('the reaction ran', () => existsSync(place.reactionFile));
    plant.closeValve(clock.monotonicMs());
    const seconds = ((clock.monotonicMs() - surgedMs) / 1000).toFixed(1);
    stage.say('step', `the reaction runs ${seconds} s after that began: close-valve ${tag.name} got`);
    stage.say('news', `  ${eventInWords(readFileSync(place.reactionFile, 'utf8'))}`);
    await this.#until('the flow fell', () => plant.read(0, clock.monotonicMs()) < FLOW_LIMIT / 4);
    stage.say('step', `the valve closes: ${plant.read(0, clock.monotonicMs()).toFixed(1)} m³/h`);
  }

  async #permission(): Promise<void> {
    const { sandbox, pusher, stage, agent, timetable, clock } = this.#parts;
    const { name, asset } = TAKEN;
    const tag = DEMO_TAGS.indexOf(TAKEN);
    const from = pusher.pushes;
    stage.say('news', `the permission on ${name} (asset ${asset}) is taken away`);
    sandbox.takePermission({ type: 'Asset', id: asset });
    const isHeld = async () => {
      const holds = (await agent.status())?.holds;
      return holds?.some((hold) => hold.kind === 'asset' && Number(hold.id) === asset);
    };
    await this.#until('the asset was held', async () => (await isHeld()) === true);
    stage.say('step', `asset ${asset} is held: its values wait, the other tags flow`);
    const others = sandbox.values.counts().stored;
    await this.#pause(Math.min(timetable.withoutPermissionMs, Math.max(1_500, this.#leftMs() - 6_000)));
    await this.#until('the other tags flowed', () => sandbox.values.counts().stored > others);
    const waiting = this.#missing(from, pusher.pushes, [tag]);
    if (waiting === 0) throw new MissingStepError('no value waited for the permission', { code: 'demo.step_missing' });
    stage.say('news', `the permission is given back; ${count(waiting)} values of ${name} have waited`);
    const to = pusher.pushes;
    sandbox.grantPermission({ type: 'Asset', id: asset });
    const backMs = clock.monotonicMs();
    await this.#until('the asset was released', async () => (await isHeld()) === false);
    await this.#until('its values were delivered', () => this.#missing(from, to, [tag]) === 0);
    const seconds = ((clock.monotonicMs() - backMs) / 1000).toFixed(1);
    stage.say('step', `asset ${asset} is released, and they are delivered within ${seconds} s`);
  }

  async #renewal(): Promise<void> {
    const { sandbox } = this.#parts;
    await this.#until('a token was renewed', () =>
      sandbox.tokens.list().some(({ grant }) => grant === 'refresh_token'),
    );
  }

  /** The plant falls silent, and what is on the way arrives. What does not arrive the count will say. */
  async #settle(): Promise<void> {
    const { pusher } = this.#parts;
    await pusher.stop();
    await this.#until('everything arrived', () => this.#missing(0, pusher.pushes) === 0);
  }

  /** The last act: SIGTERM. Gives what was wrong with the end. */
  async stop(): Promise<string[]> {
    const { agent, stage, clock, timetable, sandbox } = this.#parts;
    stage.say('news', 'the agent is asked to stop (SIGTERM)');
    // Later than the time is up: an agent that hangs shall not keep the terminal.
    const cancel = clock.after(Math.max(this.#leftMs(), 0) + timetable.stopMs + 3_000, () => agent.kill());
    const how = await agent.stop();
    cancel();
    const { alive } = sandbox.tokens.counts();
    if (how === 0 && alive === 0) {
      stage.say('step', 'it has stopped cleanly (exit 0) and revoked its token: tokens alive 0');
      return [];
    }
    const problems = how === 0 ? [] : [`the agent stopped with ${how} instead of exit 0`];
    return alive === 0 ? problems : [...problems, `${counted(alive, 'token', 'is', 'are')} still alive`];
  }

  /** Acknowledged values of some pushes that the platform does not have, of all tags or some. */
  #missing(from: number, to: number, tags: readonly number[] = DEMO_TAGS.map((_, tag) => tag)): number {
    const { pusher, sandbox } = this.#parts;
    let missing = 0;
    for (const tag of tags) {
      const { asset, key } = DEMO_TAGS[tag]!;
      const sent = pusher.valuesOf(tag, { acknowledged: true, from, to });
      missing += sandbox.values.compare(asset, key, sent).missing.length;
    }
    return missing;
  }

  #leftMs(): number {
    return this.#endMs - this.#parts.clock.monotonicMs();
  }

  async #until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    const { clock, signal, timetable } = this.#parts;
    for (;;) {
      signal.throwIfAborted();
      if (await condition()) return;
      if (this.#leftMs() <= 0) {
        const words = `within ${timetable.wholeMs / 1000} s this never came: ${what}`;
        throw new MissingStepError(words, { code: 'demo.step_missing' });
      }
      await clock.sleep(LOOK_MS, signal);
    }
  }

  async #pause(delayMs: number): Promise<void> {
    await this.#parts.clock.sleep(Math.min(delayMs, Math.max(0, this.#leftMs())), this.#parts.signal);
  }
}

interface ThresholdWords {
  event_type?: string;
  content?: {
    instrumentation?: { id?: number };
    data?: { value?: number; key?: string; unit?: { symbol?: string } };
    threshold?: { type?: string; value?: number };
  };
}

/** What the command got on standard input, short enough for a line. */
function eventInWords(json: string): string {
  const { event_type: type, content } = JSON.parse(json) as ThresholdWords;
  const { data, threshold, instrumentation } = content ?? {};
  const symbol = data?.unit?.symbol ?? '';
  return `${type} of ${instrumentation?.id}: ${data?.key} ${data?.value} ${symbol}, ${threshold?.type} limit ${threshold?.value}`;
}
