import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import type { FarEnd } from '../far-end.ts';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const BATCH = 20;
const KEYS = ['a', 'b', 'c', 'd'] as const;
/** Number of times a program sends a batch without a response before it drops the batch. */
const ATTEMPTS = 3;
/** Request timeout of the programs. */
const PATIENCE_MS = 5_000;
const ACKNOWLEDGED_WITHIN_MS = 180_000;

interface PushFormat {
  path: string;
  type: string;
  hasStatus: boolean;
  body(claims: readonly Claim[]): string;
}

/** Push formats over HTTP. */
const FORMATS = {
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
} satisfies Record<string, PushFormat>;

function jsonOf({ asset, key, value, timestampMs, status }: Claim): string {
  const ending = status === undefined ? '' : `,"status":"${status}"`;
  return `{"tag":"T-${asset}","key":"${key}","value":${numberText(value)},"timestamp":${timestampMs}${ending}}`;
}

/** Programs that push values. Values acknowledged with 204 must be delivered. */
export class PushWay implements Way {
  readonly name: keyof typeof FORMATS;
  readonly sources = '';
  readonly tags: string;
  /** Number of acknowledged values. */
  acknowledged = 0;
  /** Response times since the list was last cleared, in milliseconds. */
  latencies: number[] = [];
  /** Number of responses per status other than 204; 0 is a missing response. */
  readonly refused = new Map<number, number>();
  /** Latest error of a request without a response. */
  latestError = '';
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #format: PushFormat;
  readonly #post: (path: string, type: string, body: string) => Promise<number>;
  readonly #farEnd: FarEnd;
  readonly #patienceMs: number;
  #loops: Loop[] = [];

  constructor(
    name: keyof typeof FORMATS,
    asset: number,
    context: WayContext,
    farEnd: FarEnd,
    post: (path: string, type: string, body: string) => Promise<number>,
    patienceMs = PATIENCE_MS,
  ) {
    this.name = name;
    this.#format = FORMATS[name];
    this.#asset = asset;
    this.#context = context;
    this.#farEnd = farEnd;
    this.#patienceMs = patienceMs;
    this.#post = post;
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${KEYS.map((key) => `${key}: { unit: 12 }`).join(', ')} } }\n`;
  }

  /** Pushes to an agent's socket. */
  static to(
    agent: AgentProcess,
    name: keyof typeof FORMATS,
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
    this.#loops = [0, 1].map(() => new Loop(() => this.#pushBatch()));
    for (const loop of this.#loops) loop.start((1000 * BATCH * this.#loops.length) / perSecond);
  }

  /** Stops the programs and pushes one more value, to detect an input that no longer accepts values. */
  async rest(): Promise<void> {
    await this.close();
    if (this.#loops.length > 0) await this.fresh(KEYS[0]!, ACKNOWLEDGED_WITHIN_MS);
  }

  async close(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.end()));
  }

  /** Pushes one fresh value until it is acknowledged, or rejects after `withinMs`. */
  async fresh(key: string, withinMs: number): Promise<Claim> {
    const claim = this.#claim(key);
    for (const end = performance.now() + withinMs; !(await this.#push([claim])); await pause(100)) {
      if (performance.now() > end)
        throw new Error(`a fresh value was not acknowledged: ${[...this.refused]} ${this.latestError}`);
    }
    return claim;
  }

  #claim(key: string): Claim {
    const { oracle, readings } = this.#context;
    const claim = readings.next(this.name, this.#asset, key, this.#format.hasStatus);
    oracle.offer(claim);
    return claim;
  }

  async #pushBatch(): Promise<void> {
    const claims = Array.from({ length: BATCH }, (_, i) => this.#claim(KEYS[i % KEYS.length]!));
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await this.#push(claims)) return;
      await pause(50);
    }
  }

  async #push(claims: readonly Claim[]): Promise<boolean> {
    const { path, type, body } = this.#format;
    const began = performance.now();
    const answer = this.#post(path, type, body(claims)).catch((error: unknown) => {
      this.latestError = String(error);
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
