import type { AgentProcess } from '../../process/agent-process.ts';
import type { FarEnd } from '../far-end.ts';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const BATCH = 20;
const KEYS = ['a', 'b', 'c', 'd'] as const;
/** A careful program sends what it has no answer for again; one that is not forgets it. */
const TRIES = 3;
/** The agent stands still, or its disk: a program waits no longer. */
const PATIENCE_MS = 5_000;
const LAST_WORD_MS = 180_000;

interface Spelling {
  path: string;
  type: string;
  hasStatus: boolean;
  body(claims: readonly Claim[]): string;
}

/** How values are pushed over HTTP: a spelling each. */
const SPELLINGS = {
  http: {
    path: '/v1/values',
    type: 'application/json',
    hasStatus: true,
    body: (claims) => `{"values":[${claims.map(jsonOf).join(',')}]}`,
  },
  ndjson: {
    path: '/v1/values',
    type: 'application/x-ndjson',
    hasStatus: true,
    body: (claims) => claims.map((claim) => `${jsonOf(claim)}\n`).join(''),
  },
  line: {
    path: '/write?precision=ms',
    type: 'text/plain',
    hasStatus: false,
    body: (claims) =>
      claims
        .map(({ asset, key, value, timestampMs }) => `T-${asset} ${key}=${numberText(value)} ${timestampMs}\n`)
        .join(''),
  },
} satisfies Record<string, Spelling>;

function jsonOf({ asset, key, value, timestampMs, status }: Claim): string {
  const ending = status === undefined ? '' : `,"status":"${status}"`;
  return `{"tag":"T-${asset}","key":"${key}","value":${numberText(value)},"timestamp":${timestampMs}${ending}}`;
}

/** Programs that push: a 204 is the obligation. */
export class PushWay implements Way {
  readonly name: keyof typeof SPELLINGS;
  readonly sources = '';
  readonly tags: string;
  /** Values that were, so far. */
  acknowledged = 0;
  /** How long answers took, in ms, since somebody asked last. */
  latencies: number[] = [];
  /** Statuses of answers other than 204; 0 is none. */
  readonly refused = new Map<number, number>();
  /** Why there was no answer at all, the last time. */
  lastWords = '';
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #spelling: Spelling;
  readonly #post: (path: string, type: string, body: string) => Promise<number>;
  readonly #farEnd: FarEnd;
  readonly #patienceMs: number;
  #loops: Loop[] = [];

  constructor(
    name: keyof typeof SPELLINGS,
    asset: number,
    context: WayContext,
    farEnd: FarEnd,
    post: (path: string, type: string, body: string) => Promise<number>,
    patienceMs = PATIENCE_MS,
  ) {
    this.name = name;
    this.#spelling = SPELLINGS[name];
    this.#asset = asset;
    this.#context = context;
    this.#farEnd = farEnd;
    this.#patienceMs = patienceMs;
    this.#post = post;
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${KEYS.map((key) => `${key}: { unit: 12 }`).join(', ')} } }\n`;
  }

  /** Over the socket of a daemon. */
  static to(
    agent: AgentProcess,
    name: keyof typeof SPELLINGS,
    asset: number,
    context: WayContext,
    farEnd: FarEnd,
  ): PushWay {
    return new PushWay(name, asset, context, farEnd, async (path, type, body) => {
      const { status } = await agent.call(agent.ingest, path, { body, headers: { 'Content-Type': type } });
      return status;
    });
  }

  produce(perSecond: number): void {
    this.#loops = [0, 1].map(() => new Loop(() => this.#give()));
    for (const loop of this.#loops) loop.start((1000 * BATCH * this.#loops.length) / perSecond);
  }

  /** Its last word is acknowledged: a way that has fallen silent for good is found. */
  async rest(): Promise<void> {
    await this.close();
    if (this.#loops.length > 0) await this.fresh(KEYS[0]!, LAST_WORD_MS);
  }

  async close(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.end()));
  }

  /** Gives one fresh value until it is acknowledged; rejects where that never comes. */
  async fresh(key: string, withinMs: number): Promise<Claim> {
    const claim = this.#claim(key);
    for (const end = performance.now() + withinMs; !(await this.#push([claim])); await pause(100)) {
      if (performance.now() > end)
        throw new Error(`a fresh value was never acknowledged: ${[...this.refused]} ${this.lastWords}`);
    }
    return claim;
  }

  #claim(key: string): Claim {
    const { oracle, readings } = this.#context;
    const claim = readings.next(this.name, this.#asset, key, this.#spelling.hasStatus);
    oracle.offer(claim);
    return claim;
  }

  async #give(): Promise<void> {
    const claims = Array.from({ length: BATCH }, (_, i) => this.#claim(KEYS[i % KEYS.length]!));
    for (let tries = 0; tries < TRIES; tries++) {
      if (await this.#push(claims)) return;
      await pause(50);
    }
  }

  async #push(claims: readonly Claim[]): Promise<boolean> {
    const { path, type, body } = this.#spelling;
    const began = performance.now();
    const answer = this.#post(path, type, body(claims)).catch((error: unknown) => {
      this.lastWords = String(error);
      return 0;
    });
    const status = await Promise.race([answer, pause(this.#patienceMs).then(() => 0)]);
    if (status !== 204) {
      this.refused.set(status, (this.refused.get(status) ?? 0) + 1);
      return false;
    }
    this.latencies.push(performance.now() - began);
    this.acknowledged += claims.length;
    this.#farEnd.committed(began);
    for (const claim of claims) this.#context.oracle.acknowledge(claim);
    return true;
  }
}
