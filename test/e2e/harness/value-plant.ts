import type { AgentProcess } from './agent-process.ts';

/** Assets of the sandbox plant that the technical user may post to. */
const ASSETS = [881, 882, 883, 884, 885, 886];
const KEYS = ['a', 'b'];
/** Pushed tags as lines below `tags:` in tags.yaml. */
export const VALUE_TAGS = ASSETS.map(
  (asset) => `  T-${asset}: { asset: ${asset}, values: { a: { unit: 1 }, b: { unit: 1 } } }\n`,
).join('');

type Compare = (
  asset: number,
  key: string,
  sent: { timestampMs: number; value: number }[],
) => { missing: number[]; invented: number[]; different: number[] };

type Series = Map<string, { timestampMs: number; value: number }[]>;

/** Format of a push request. */
export type PushFormat = 'json' | 'ndjson' | 'line protocol';

interface PushedValue {
  tag: string;
  key: string;
  value: number;
  timestamp: number;
}

/** Pushes values with explicit timestamps in one request. Returns the response status. */
export async function pushAs(format: PushFormat, agent: AgentProcess, values: readonly PushedValue[]): Promise<number> {
  const { path, type, body } = {
    json: { path: '/v1/values', type: 'application/json', body: JSON.stringify({ values }) },
    ndjson: { path: '/v1/values', type: 'application/x-ndjson', body: linesOf(values, (one) => JSON.stringify(one)) },
    'line protocol': {
      path: '/write?precision=ms',
      type: 'text/plain',
      body: linesOf(values, ({ tag, key, value, timestamp }) => `${tag} ${key}=${value} ${timestamp}`),
    },
  }[format];
  const { status } = await agent.call(agent.ingest, path, { method: 'POST', headers: { 'Content-Type': type }, body });
  return status;
}

const linesOf = (values: readonly PushedValue[], line: (value: PushedValue) => string) =>
  values.map((value) => `${line(value)}\n`).join('');

export interface ValueCount {
  acknowledged: number;
  /** Acknowledged, but not on the platform. */
  missing: number;
  /** On the platform, but never offered or with another value. */
  invented: number;
  different: number;
}

/** Plant that pushes with or without pauses, and records acknowledged and offered values. */
export class ValuePlant {
  readonly #agent: AgentProcess;
  readonly #pauseMs: number;
  readonly #acknowledged: Series = new Map();
  readonly #offered: Series = new Map();
  #timeMs = 1_700_000_000_000;
  #running = true;
  readonly #done: Promise<unknown>;

  /** Starts three programs immediately, which use the formats in turn. */
  constructor(agent: AgentProcess, pauseMs = 0, formats: readonly PushFormat[] = ['json']) {
    this.#agent = agent;
    this.#pauseMs = pauseMs;
    this.#done = Promise.all([0, 1, 2].map((program) => this.#push(formats[program % formats.length]!)));
  }

  async #push(format: PushFormat): Promise<void> {
    while (this.#running) {
      const timestampMs = this.#timeMs++;
      const values = ASSETS.flatMap((asset) =>
        KEYS.map((key) => ({ tag: `T-${asset}`, key, value: valueAt(timestampMs), timestamp: timestampMs })),
      );
      for (const asset of ASSETS) note(this.#offered, asset, timestampMs);
      const status = await pushAs(format, this.#agent, values).catch(() => undefined);
      if (status === 204) for (const asset of ASSETS) note(this.#acknowledged, asset, timestampMs);
      // Retries a stopped agent after a pause, to save CPU.
      else await new Promise((resolve) => setTimeout(resolve, 10));
      if (this.#pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#pauseMs));
    }
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#done;
  }

  /** Compares with the platform after all posts have completed. */
  count(platform: { compare: Compare }): ValueCount {
    const count = { acknowledged: 0, missing: 0, invented: 0, different: 0 };
    for (const asset of ASSETS) {
      for (const key of KEYS) {
        const sure = this.#acknowledged.get(`${asset}/${key}`) ?? [];
        count.acknowledged += sure.length;
        count.missing += platform.compare(asset, key, sure).missing.length;
        const offered = this.#offered.get(`${asset}/${key}`) ?? [];
        const { invented, different } = platform.compare(asset, key, offered);
        count.invented += invented.length;
        count.different += different.length;
      }
    }
    return count;
  }
}

function valueAt(timestampMs: number): number {
  return (timestampMs % 100_000) / 100;
}

function note(where: Series, asset: number, timestampMs: number): void {
  for (const key of KEYS) {
    const list = where.get(`${asset}/${key}`) ?? [];
    list.push({ timestampMs, value: valueAt(timestampMs) });
    where.set(`${asset}/${key}`, list);
  }
}
