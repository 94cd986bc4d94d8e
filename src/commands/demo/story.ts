/**
 * Demo steps. Each step triggers an action, waits for its effect and reports it. A missing effect ends the demo with
 * `MissingStepError`; values are counted anyway.
 */

import { existsSync, readFileSync } from 'node:fs';
import { countText as count, counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { SANDBOX_CREDENTIALS, type Sandbox } from '../../sandbox/sandbox.ts';
import type { AgentChild, AgentPlace } from './agent.ts';
import { type Count, countAtPlatform } from './count.ts';
import { DEMO_TAGS, FLOW_LIMIT, GATEWAY_ASSET, LEVEL_LIMIT, type SimulatedPlant } from './plant.ts';
import type { Pusher } from './pusher.ts';
import type { Stage } from './stage.ts';
import { shouldReturn, type Timetable } from './timetable.ts';
import type { Watch } from './watch.ts';

/** An expected effect did not occur in time. */
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
  /** Fires on Ctrl-C or if the agent exits unexpectedly. */
  signal: AbortSignal;
}

/** Steps on a slow machine may end this long after the planned end. */
const LATE_MS = 30_000;
const POLL_MS = 50;
/** Tag whose permission is revoked. */
const REVOKED = DEMO_TAGS.find(({ name }) => name === 'TT-101')!;

export class Story {
  readonly #parts: StoryParts;
  readonly #endMs: number;

  constructor(parts: StoryParts) {
    this.#parts = parts;
    this.#endMs = parts.startedMs + parts.timetable.wholeMs - parts.timetable.stopMs;
  }

  /** Runs all steps before the count. Rejects with `MissingStepError` or the signal's abort reason. */
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

  /** Reports logins and deliveries on the platform. */
  #followPlatform(): void {
    const { sandbox, stage } = this.#parts;
    sandbox.onDelivery(({ delivery, answer }) => {
      stage.say('news', `webhook delivery ${delivery.eventType}: response ${answer}`);
    });
    sandbox.requests.onRequest(({ path, status }) => {
      if (path !== '/oauth/token' || status !== 200) return;
      const token = sandbox.tokens.list().at(-1);
      if (!token) return;
      const life = Math.round((token.expiresMs - token.createdMs) / 1000);
      if (token.grant === 'password') {
        stage.say('step', `signed in as ${SANDBOX_CREDENTIALS.technicalUsername}, token valid for ${life} s`);
      } else stage.say('step', `token renewed, valid for ${life} s`);
    });
  }

  async #begin(): Promise<void> {
    const { sandbox, agent, stage } = this.#parts;
    stage.say('news', `the platform (a sandbox) is listening on ${sandbox.url}`);
    agent.start();
    stage.say('news', `agent started as process ${agent.pid}`);
    await this.#until('the agent signed in', () => sandbox.tokens.counts().issued > 0);
    await this.#until('the agent became ready', () => agent.isReady());
    await this.#until('the webhook was registered', () => sandbox.webhooks().length > 0);
    stage.say('step', 'webhook registered, agent ready to ingest values');
  }

  async #flow(): Promise<void> {
    const { sandbox, pusher, watch, stage, timetable } = this.#parts;
    pusher.start();
    watch.start();
    stage.say('news', `the plant pushes values for ${counted(DEMO_TAGS.length, 'tag')} 5 times per second`);
    await this.#until('values arrived at the platform', () => sandbox.values.counts().stored > 0);
    await this.#pause(timetable.calmMs);
    await this.#until('readings of this machine arrived', () => sandbox.values.counts(GATEWAY_ASSET).stored > 0);
    const machine = count(sandbox.values.counts(GATEWAY_ASSET).stored);
    stage.say('step', `${watch.rate} values per second; ${machine} readings of this machine so far`);
  }

  async #outage(): Promise<void> {
    const { sandbox, pusher, watch, stage, timetable, clock, agent } = this.#parts;
    const from = pusher.pushes;
    await sandbox.goOffline('refuse');
    const goneMs = clock.monotonicMs();
    watch.away = true;
    stage.say('news', 'outage: the platform refuses connections');
    await this.#until('the agent detected the outage', async () => (await agent.status())?.uplink.state === 'away');
    stage.say('step', 'the agent detected the outage and is buffering values');
    await this.#localRule();
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
    stage.say('step', `${count(values)} values on disk after ${away} s and ${counted(attempts, 'attempt')}`);
    stage.say('news', 'the platform is available again');
    await this.#until('the agent reconnected', async () => (await agent.status())?.uplink.state === 'online');
    watch.away = false;
    // All requests sent during the outage have received responses, so these values must arrive.
    const total = DEMO_TAGS.length * pusher.valuesOf(0, { acknowledged: true, from, to }).length;
    watch.drain = { total, left: () => Math.min(total, left()) };
    stage.say('step', 'platform connection restored, posting the backlog');
    await this.#until('the backlog was delivered', () => left() === 0);
    stage.say('step', `all ${count(total)} values buffered during the outage delivered, none missing`);
    watch.drain = undefined;
  }

  /** A local rule runs without the platform. */
  async #localRule(): Promise<void> {
    const { plant, stage, clock, place } = this.#parts;
    const beganMs = clock.monotonicMs();
    plant.overfill();
    await this.#until('the local rule ran', () => existsSync(place.ruleFile));
    plant.drain();
    const seconds = ((clock.monotonicMs() - beganMs) / 1000).toFixed(1);
    stage.say('step', `offline rule drain-tank ran ${seconds} s after LT-101 exceeded ${LEVEL_LIMIT} m`);
  }

  async #threshold(): Promise<void> {
    const { sandbox, plant, stage, clock, place } = this.#parts;
    const tag = DEMO_TAGS[0]!;
    const { key, unit, instrumentation } = tag;
    sandbox.setThreshold({ instrumentation, type: 'high', value: FLOW_LIMIT, key, unit });
    plant.surge(clock.monotonicMs());
    const surgedMs = clock.monotonicMs();
    stage.say('news', `the ${tag.name} flow surges above its threshold of ${FLOW_LIMIT} m³/h`);
    await this.#until('the threshold event was acknowledged', () =>
      sandbox.deliveries().some((one) => one.eventType === 'threshold_reached' && one.status === 'delivered'),
    );
    await this.#until('the reaction ran', () => existsSync(place.reactionFile));
    plant.closeValve(clock.monotonicMs());
    const seconds = ((clock.monotonicMs() - surgedMs) / 1000).toFixed(1);
    stage.say('step', `reaction close-valve ran ${seconds} s after the surge began:`);
    stage.say('news', `  ${eventText(readFileSync(place.reactionFile, 'utf8'))}`);
    await this.#until('the flow fell', () => plant.read(0, clock.monotonicMs()) < FLOW_LIMIT / 4);
    stage.say('step', `valve closed, flow ${plant.read(0, clock.monotonicMs()).toFixed(1)} m³/h`);
  }

  async #permission(): Promise<void> {
    const { sandbox, pusher, stage, agent, timetable, clock } = this.#parts;
    const { name, asset } = REVOKED;
    const tag = DEMO_TAGS.indexOf(REVOKED);
    const from = pusher.pushes;
    stage.say('news', `the permission on ${name} (asset ${asset}) is revoked`);
    sandbox.revokePermission({ type: 'Asset', id: asset });
    const isHeld = async () => {
      const holds = (await agent.status())?.holds;
      return holds?.some((hold) => hold.kind === 'asset' && Number(hold.id) === asset);
    };
    await this.#until('the asset was held', async () => (await isHeld()) === true);
    stage.say('step', `asset ${asset} held, values of the other tags are delivered`);
    const others = sandbox.values.counts().stored;
    await this.#pause(Math.min(timetable.withoutPermissionMs, Math.max(1_500, this.#leftMs() - 6_000)));
    await this.#until('values of the other tags were delivered', () => sandbox.values.counts().stored > others);
    const waiting = this.#missing(from, pusher.pushes, [tag]);
    if (waiting === 0)
      throw new MissingStepError('no values were held back by the missing permission', { code: 'demo.step_missing' });
    stage.say('news', `the permission is granted again, with ${counted(waiting, 'buffered value')} of ${name}`);
    const to = pusher.pushes;
    sandbox.grantPermission({ type: 'Asset', id: asset });
    const backMs = clock.monotonicMs();
    await this.#until('the asset was released', async () => (await isHeld()) === false);
    await this.#until('its values were delivered', () => this.#missing(from, to, [tag]) === 0);
    const seconds = ((clock.monotonicMs() - backMs) / 1000).toFixed(1);
    stage.say('step', `asset ${asset} released, its values delivered within ${seconds} s`);
  }

  async #renewal(): Promise<void> {
    const { sandbox } = this.#parts;
    await this.#until('a token was renewed', () =>
      sandbox.tokens.list().some(({ grant }) => grant === 'refresh_token'),
    );
  }

  /** Stops the plant and waits for pending values. */
  async #settle(): Promise<void> {
    const { pusher } = this.#parts;
    await pusher.stop();
    await this.#until('all values arrived', () => this.#missing(0, pusher.pushes) === 0);
  }

  /** Stops the agent with SIGTERM and returns the problems. */
  async stop(): Promise<string[]> {
    const { agent, stage, clock, timetable, sandbox } = this.#parts;
    stage.say('news', 'stopping the agent (SIGTERM)');
    // Kill an agent that does not stop.
    const cancel = clock.after(Math.max(this.#leftMs(), 0) + timetable.stopMs + 3_000, () => agent.kill());
    const how = await agent.stop();
    cancel();
    const { alive } = sandbox.tokens.counts();
    if (how === 0 && alive === 0) {
      stage.say('step', 'agent stopped (exit status 0), token revoked');
      return [];
    }
    const problems = how === 0 ? [] : [`the agent stopped with ${how} instead of exit status 0`];
    return alive === 0 ? problems : [...problems, `${counted(alive, 'token', 'is', 'are')} still valid`];
  }

  /** Counts acknowledged values between two positions that are missing from the platform. */
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
      if (this.#leftMs() < -LATE_MS) {
        const words = `did not happen within ${(timetable.wholeMs + LATE_MS) / 1000} s: ${what}`;
        throw new MissingStepError(words, { code: 'demo.step_missing' });
      }
      await clock.sleep(POLL_MS, signal);
    }
  }

  async #pause(delayMs: number): Promise<void> {
    await this.#parts.clock.sleep(Math.min(delayMs, Math.max(0, this.#leftMs())), this.#parts.signal);
  }
}

interface ThresholdEvent {
  content?: {
    instrumentation?: { id?: number };
    data?: { value?: number; key?: string; unit?: { symbol?: string } };
    threshold?: { type?: string; value?: number };
  };
}

/** Returns the event that the command received, shortened to one line. */
function eventText(json: string): string {
  const { content } = JSON.parse(json) as ThresholdEvent;
  const { data, threshold, instrumentation } = content ?? {};
  const symbol = data?.unit?.symbol ?? '';
  return `instrumentation ${instrumentation?.id}: ${data?.key} ${data?.value} ${symbol}, ${threshold?.type} threshold ${threshold?.value}`;
}
