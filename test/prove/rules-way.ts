import { readStoppedInbox } from '../../src/control/stopped-inbox.ts';
import type { AgentProcess } from '../e2e/harness/agent-process.ts';
import type { FarEnd } from './far-end.ts';
import type { Claim } from './oracle.ts';
import { Loop, pause, type WayContext } from './ways/way.ts';

const ASSET = 891;
const THRESHOLD = 0;
const ATTEMPT_MS = 5_000;

export interface RulesVerdict {
  /** Acknowledged values that crossed the rule's threshold. */
  crossings: number;
  /** Crossings without an event, or with another value. */
  missing: number;
  /** Events without a crossing. */
  invented: number;
}

/** A rule on a local value: every acknowledged crossing of its threshold must create exactly one event, in order. */
export class RulesWay {
  readonly tags = `  T-${ASSET}: { asset: ${ASSET}, values: { level: { unit: 12 } } }\n`;
  readonly reactions =
    `  - { name: level, on: value, if: { tag: T-${ASSET}, key: level, above: ${THRESHOLD} }, do: [{ log: debug }] }\n`;
  readonly #agent: AgentProcess;
  readonly #context: WayContext;
  readonly #farEnd: FarEnd;
  readonly #crossings: number[] = [];
  readonly #loop = new Loop(() => this.#cross());
  #isEnding = false;

  constructor(agent: AgentProcess, context: WayContext, farEnd: FarEnd) {
    this.#agent = agent;
    this.#context = context;
    this.#farEnd = farEnd;
  }

  produce(perSecond: number): void {
    this.#loop.start(1000 / perSecond);
  }

  /** Stops after the final value is acknowledged. */
  async rest(): Promise<void> {
    await this.#loop.end();
  }

  async close(): Promise<void> {
    this.#isEnding = true;
    await this.#loop.end().catch(() => {});
  }

  /** Compares the crossings with the stopped agent's inbox. */
  async judge(stateDir: string): Promise<RulesVerdict> {
    const created = await readStoppedInbox(stateDir, async (inbox) => {
      const values: number[] = [];
      for (let beforeId: number | undefined; ; ) {
        const page = await inbox.list({ limit: 1_000, ...(beforeId === undefined ? {} : { beforeId }) });
        for (const { id, eventType } of page) {
          if (eventType.startsWith('value_')) values.unshift(valueIn((await inbox.show(id))!.payload));
        }
        if (page.length < 1_000) return values;
        beforeId = page.at(-1)!.id;
      }
    });
    const missing = this.#crossings.filter((value) => !created.includes(value)).length;
    const invented = created.filter((value, at) => !this.#crossings.includes(value) || created.indexOf(value) !== at);
    return { crossings: this.#crossings.length, missing, invented: invented.length };
  }

  /** Pushes a value on the other side of the threshold until it is acknowledged. Each value is unique. */
  async #cross(): Promise<void> {
    const serial = this.#crossings.length + 1;
    const value = serial % 2 === 1 ? serial : -serial;
    const { oracle, readings } = this.#context;
    const claim = { ...readings.next('rules', ASSET, 'level', false), value };
    oracle.offer(claim);
    while (!(await this.#push(claim))) {
      if (this.#isEnding) return;
      await pause(50);
    }
    oracle.acknowledge(claim);
    this.#crossings.push(value);
  }

  async #push({ value, timestampMs }: Claim): Promise<boolean> {
    const began = performance.now();
    const pushed = this.#agent
      .push([{ tag: `T-${ASSET}`, key: 'level', value, timestamp: timestampMs }])
      .then(({ status }) => status === 204)
      .catch(() => false);
    const isAcknowledged = await Promise.race([pushed, pause(ATTEMPT_MS).then(() => false)]);
    if (isAcknowledged) this.#farEnd.committed(began);
    return isAcknowledged;
  }
}

function valueIn(payload: string): number {
  return (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value;
}
