import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { contentOf } from '../old/webhook/event-plant.ts';
import { wholeLines } from '../whole-lines.ts';
import { Loop, pause } from './ways/way.ts';

const SETTLED_WITHIN_MS = 120_000;
const SILENT_EVENTS = 40;

export interface EventVerdict {
  sent: number;
  /** Deliveries acknowledged with 204. */
  acknowledged: number;
  /** Acknowledged events whose reaction wrote no line. */
  missing: number;
  invented: number;
  /** Reactions that ran more than once, which requires a fault. */
  repeated: number;
}

/** Sends webhook events. The reaction of each event acknowledged with 204 must write a line to a journal. */
export class EventsWay {
  reactions: string;
  readonly #sandbox: Sandbox;
  readonly #journal: string;
  readonly #sent = new Set<number>();
  readonly #loop = new Loop(async () => void this.#send());
  #serial = 0;
  #read = 0;

  /** Receives the posts from a second rule. */
  readonly #receiver = createServer((request, response) => {
    request.resume();
    if (this.#isSilent) this.#unanswered.add(response);
    else response.writeHead(204).end();
  });
  readonly #unanswered = new Set<ServerResponse>();
  #isSilent = false;

  static async open(sandbox: Sandbox, folder: string): Promise<EventsWay> {
    const way = new EventsWay(sandbox, folder);
    way.#receiver.listen(0, '127.0.0.1');
    await once(way.#receiver, 'listening');
    const { port } = way.#receiver.address() as AddressInfo;
    way.reactions += `  - name: forward-it\n    on: threshold_reached\n    max_age: 30d\n    do: [{ post: "http://127.0.0.1:${port}/" }]\n`;
    return way;
  }

  // The platform clock is advanced by days for its retries, so the rules accept events of any age.
  private constructor(sandbox: Sandbox, folder: string) {
    this.#sandbox = sandbox;
    this.#journal = join(folder, 'reactions-ran');
    writeFileSync(this.#journal, '');
    this.reactions = `reactions:\n  - name: note-it\n    on: threshold_reached\n    max_age: 30d\n    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${this.#journal}'] }]\n`;
  }

  produce(perSecond: number): void {
    this.#loop.start(1000 / perSecond);
  }

  async rest(): Promise<void> {
    await this.#loop.end();
  }

  async close(): Promise<void> {
    await this.rest().catch(() => {});
    this.silence(false);
    this.#receiver.closeAllConnections();
    await new Promise((resolve) => this.#receiver.close(resolve));
  }

  /**
   * Makes the second rule's receiver accept requests without responding: more requests than the agent's limit of
   * concurrent actions.
   */
  silence(isSilent: boolean): void {
    this.#isSilent = isSilent;
    if (isSilent) {
      for (let i = 0; i < SILENT_EVENTS; i++) this.#send();
      return;
    }
    for (const response of this.#unanswered) response.writeHead(204).end();
    this.#unanswered.clear();
  }

  /** Sends an event and waits until its reaction has written a line. */
  async reacts(): Promise<void> {
    const end = performance.now() + SETTLED_WITHIN_MS;
    const number = this.#send();
    while (number === undefined || !this.#lines().includes(number)) {
      if (performance.now() > end) throw new Error(`event ${number} ran no reaction`);
      await pause(100);
    }
  }

  /**
   * Advances the platform clock until all deliveries are acknowledged and all reactions have run, or until progress
   * stops. Returns the counts.
   */
  async judge(withinMs = SETTLED_WITHIN_MS): Promise<EventVerdict> {
    // The time limit restarts with every reaction, because commands are slow on a busy machine.
    let [left, movedMs] = [Number.POSITIVE_INFINITY, performance.now()];
    const isOver = () => {
      const { sent, acknowledged, missing } = this.#count();
      const open = sent - acknowledged + missing;
      if (open < left) [left, movedMs] = [open, performance.now()];
      return open === 0 || performance.now() - movedMs > withinMs;
    };
    while (!isOver()) {
      this.#sandbox.clock.advance(5_000);
      await pause(100);
    }
    const verdict = this.#count();
    this.#read = this.#lines().length;
    this.#sent.clear();
    return verdict;
  }

  #send(): number | undefined {
    // The agent has not registered its webhook yet.
    if (this.#sandbox.webhooks().length === 0) return undefined;
    const number = ++this.#serial;
    this.#sent.add(number);
    this.#sandbox.announcer.announce({
      type: 'threshold_reached',
      audience: () => true,
      content: () => contentOf(number, true),
    });
    return number;
  }

  #count(): EventVerdict {
    const times = new Map<number, number>();
    for (const number of this.#lines().slice(this.#read)) times.set(number, (times.get(number) ?? 0) + 1);
    const delivered = new Set(
      this.#sandbox
        .deliveries()
        .filter(({ status }) => status === 'delivered')
        .map(({ payload }) => numberOf(payload)),
    );
    const verdict = { sent: this.#sent.size, acknowledged: 0, missing: 0, invented: 0, repeated: 0 };
    for (const number of this.#sent) {
      if (!delivered.has(number)) continue;
      verdict.acknowledged++;
      if (!times.has(number)) verdict.missing++;
    }
    for (const [number, count] of times) {
      if (number > this.#serial || !(number >= 1)) verdict.invented++;
      verdict.repeated += this.#sent.has(number) ? count - 1 : count;
    }
    return verdict;
  }

  #lines(): number[] {
    return wholeLines(this.#journal).map(Number);
  }
}

function numberOf(payload: string): number {
  return (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value;
}
