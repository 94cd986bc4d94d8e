import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { readStoppedInbox } from '../../../src/control/stopped-inbox.ts';
import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { InboxEvent } from '../../../src/webhook/inbox-event.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { wholeLines } from '../../whole-lines.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';

/**
 * Agent whose reactions each write a line, and a platform that continuously sends distinct events, to count missed
 * events and repeated reactions.
 */
export class EventPlant {
  readonly sandbox: Sandbox;
  readonly agent: GatewayProcess;
  /** Address of the listener, unless `env` overrides it. */
  readonly port: number;
  /** Numbers of the events that the platform sent; numbers of those with a reaction. */
  readonly sent = new Set<number>();
  readonly meant = new Set<number>();
  /**
   * Completed events in the inbox at the kill, with the number of reaction runs until then. These reactions must never
   * run again.
   */
  readonly finished = new Map<number, number>();
  #serial = 0;
  #serialAtBlow = 0;
  #streaming = false;
  #stream: Promise<void> = Promise.resolve();

  private constructor(sandbox: Sandbox, agent: GatewayProcess, port: number) {
    this.sandbox = sandbox;
    this.agent = agent;
    this.port = port;
  }

  /** `tags`: additional lines below `tags:` in tags.yaml. */
  static async at(sandbox: Sandbox, env: Record<string, string> = {}, tags = ''): Promise<EventPlant> {
    const port = await freePort();
    const agent = new GatewayProcess(sandbox.url);
    const ran = join(agent.folder, 'ran');
    agent.write(sandbox.url, {
      tags: `${TAGS}${tags}`,
      reactions: `reactions:\n  - name: note-it\n    on: threshold_reached\n    if: { data.key: act }\n    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${ran}'] }]\n`,
      env: { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/webhook`, ...env },
    });
    return new EventPlant(sandbox, agent, port);
  }

  /** Starts the agent for the first time and waits for the webhook catch-up. No event may be missed afterwards. */
  async begin(): Promise<void> {
    await this.agent.start();
    await this.agent.registered();
    this.send(1);
    await this.agent.until(() => this.undelivered() === 0, 'the first delivery is accepted');
  }

  /** Sends a number of events; every fifth has a reaction. */
  send(count: number): void {
    for (let i = 0; i < count; i++) {
      const number = ++this.#serial;
      const isMeant = number % 5 === 0;
      this.sent.add(number);
      if (isMeant) this.meant.add(number);
      this.sandbox.announcer.announce({
        type: 'threshold_reached',
        audience: () => true,
        content: () => contentOf(number, isMeant),
      });
    }
  }

  /**
   * Sends an event per interval until `endStream`, with a maximum between two kills, so that slow startup does not
   * increase the load.
   */
  stream(everyMs = 10, between = 150): void {
    this.#streaming = true;
    this.#stream = (async () => {
      while (this.#streaming) {
        if (this.#serial - this.#serialAtBlow < between) this.send(1);
        await new Promise((resolve) => setTimeout(resolve, everyMs));
      }
    })();
  }

  async endStream(): Promise<void> {
    this.#streaming = false;
    await this.#stream;
  }

  /** Sends kill -9 and records the completed events. */
  async kill(): Promise<void> {
    await this.agent.end('SIGKILL');
    this.#serialAtBlow = this.#serial;
    const inbox = await this.inbox();
    const times = this.#times();
    for (const event of inbox.filter(({ state }) => state === 'done').map(numberOf)) {
      if (!this.finished.has(event)) this.finished.set(event, times.get(event) ?? 0);
    }
  }

  /** Inbox contents of a stopped agent. */
  inbox(): Promise<InboxEvent[]> {
    return readStoppedInbox(this.agent.state, async (inbox) => {
      const all: InboxEvent[] = [];
      for (;;) {
        const beforeId = all.at(-1)?.id;
        const page = await inbox.list({ limit: 1_000, ...(beforeId === undefined ? {} : { beforeId }) });
        for (const { id } of page) all.push((await inbox.show(id))!);
        // Ignores events that a test sends directly.
        if (page.length < 1_000) return all.filter(({ unrecognised }) => !unrecognised);
      }
    });
  }

  /** One line per reaction run: the event number. */
  ran(): number[] {
    return wholeLines(join(this.agent.folder, 'ran')).map(Number);
  }

  #times(): Map<number, number> {
    const times = new Map<number, number>();
    for (const number of this.ran()) times.set(number, (times.get(number) ?? 0) + 1);
    return times;
  }

  undelivered(): number {
    return this.sandbox.deliveries().filter(({ status }) => status !== 'delivered').length;
  }

  /** Registration record on disk; empty if the agent was killed before it wrote one. */
  record(): { secret?: string; previous?: string; resetting?: boolean } {
    return existsSync(join(this.agent.state, 'webhook.json')) ? JSON.parse(this.agent.file('webhook.json')) : {};
  }

  /** Runs a control socket operation, as a verb does. */
  ask(operation: string, params: object = {}): Promise<{ status: number; text: string }> {
    return this.agent.call(join(this.agent.state, 'control.sock'), `/${operation}`, { body: JSON.stringify(params) });
  }

  /** Waits until no event is pending or running. */
  async over(patienceMs?: number): Promise<void> {
    const isOver = async () => {
      const { text } = await this.ask('events/ls', { limit: 10_000 });
      const { events } = JSON.parse(text) as { events: { state: string; unrecognised: boolean }[] };
      return events.every(({ state, unrecognised }) => unrecognised || state === 'done' || state === 'dead');
    };
    await this.agent.until(isOver, 'every event is completed', patienceMs);
  }

  /** Advances the platform retries until every delivery is accepted and every reaction has run. */
  async settle(patienceMs = 120_000): Promise<void> {
    await this.agent.until(
      async () => {
        this.sandbox.clock.advance(5_000);
        await new Promise((resolve) => setTimeout(resolve, 50));
        return this.undelivered() === 0;
      },
      'every delivery was acknowledged with 204',
      patienceMs,
    );
    const ran = () => new Set(this.ran());
    await this.agent.until(
      () => [...this.meant].every((number) => ran().has(number)),
      'every reaction has run',
      patienceMs,
    );
    await this.over(patienceMs);
  }

  /** Stops the agent and counts. All lists are empty on success. */
  async count(): Promise<{ missed: number[]; twice: number[]; strange: number[]; repeated: number[]; open: number[] }> {
    await this.agent.end('SIGTERM');
    const inbox = await this.inbox();
    const numbers = inbox.map(numberOf);
    const times = this.#times();
    return {
      missed: [...this.sent].filter((number) => !numbers.includes(number)),
      twice: numbers.filter((number, index) => numbers.indexOf(number) !== index),
      strange: numbers.filter((number) => !this.sent.has(number)),
      repeated: [...this.finished].filter(([number, ran]) => (times.get(number) ?? 0) > ran).map(([number]) => number),
      open: inbox.filter(({ state }) => state !== 'done').map(numberOf),
    };
  }
}

export const NOTHING_WRONG = { missed: [], twice: [], strange: [], repeated: [], open: [] };

function numberOf(event: InboxEvent): number {
  return (JSON.parse(event.payload) as { content: { data: { value: number } } }).content.data.value;
}

export function contentOf(number: number, isMeant: boolean): Record<string, unknown> {
  const unit = { code: 'liter_per_minute', symbol: 'l/min' };
  return {
    asset: { id: 881, href: 'https://platform.example/v1/assets/881' },
    instrumentation: {
      id: 4700 + (number % 40),
      href: 'https://platform.example/v1/instrumentations/4711',
      tag: 'FT-101',
    },
    data: { value: number, key: isMeant ? 'act' : 'look', timestamp: '2026-11-21T00:00:00Z', unit },
    threshold: {
      type: 'high',
      name: 'High',
      value: 20,
      unit,
      thresholdable_type: 'Instrumentation',
      value_in_threshold_unit: null,
    },
  };
}
