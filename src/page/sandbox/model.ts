/**
 * Page state, limited in size and stored in this tab's memory, and requests to `/sandbox/…`. The effects of requests
 * arrive in the stream.
 */
import type { ChartFrame, SandboxEvents, SeriesLine, SiteView } from '../../sandbox/live/sandbox-events.ts';
import { Changes } from '../stream/changes.ts';
import { type LinkState, LiveLink } from '../stream/live-link.ts';

/** A request, or the description of another action. */
export type Happening =
  | { id: string; kind: 'request'; request: SandboxEvents['requests'][number] }
  | { id: string; kind: 'sentence'; at: string; text: string };

export interface Chosen {
  asset: number;
  key: string;
}

const MAX_HAPPENINGS = 200;
const MAX_POINTS = 3_000;

export class Model {
  site: SiteView | undefined;
  readonly series = new Map<string, SeriesLine>();
  chosen: Chosen | undefined;
  chart: ChartFrame | undefined;
  /** Values of the selected series by timestamp. */
  points = new Map<number, number>();
  tokens: SandboxEvents['tokens'] | undefined;
  webhooks: SandboxEvents['webhooks'] = [];
  deliveries: SandboxEvents['deliveries'] = [];
  faults: SandboxEvents['faults'] | undefined;
  tick: SandboxEvents['tick'] | undefined;
  /** Newest first. */
  happenings: readonly Happening[] = [];
  /** Reason why the latest action failed. */
  refusal: string | undefined;
  #boot: string | undefined;
  readonly #link: LiveLink<SandboxEvents>;
  readonly #changes = new Changes();

  constructor() {
    this.#link = new LiveLink<SandboxEvents>({
      address: () =>
        this.chosen
          ? `live?${new URLSearchParams({ asset: String(this.chosen.asset), key: this.chosen.key })}`
          : 'live',
      token: () => undefined,
      received: (name, data) => this.#received(name, data),
      changed: () => this.#changes.notify(),
    });
  }

  start(): void {
    this.#link.start();
  }

  get link(): LinkState {
    return this.#link.state;
  }

  listen(listener: () => void): () => void {
    return this.#changes.listen(listener);
  }

  choose(asset: number, key = this.keysOf(asset)[0] ?? ''): void {
    if (this.chosen?.asset === asset && this.chosen.key === key) return;
    this.chosen = { asset, key };
    this.chart = undefined;
    this.points = new Map();
    this.#link.start();
    this.#changes.notify();
  }

  /** Returns the keys of an asset that have values. */
  keysOf(asset: number): string[] {
    return [...this.series.values()].filter((line) => line.asset === asset).map(({ key }) => key);
  }

  lineOf({ asset, key }: Chosen): SeriesLine | undefined {
    return this.series.get(`${asset} ${key}`);
  }

  /** Sends a request for an action and returns whether it succeeded. */
  async act(method: 'POST' | 'DELETE', path: string, body?: unknown): Promise<boolean> {
    this.refusal = await request(method, path, body).catch(String);
    this.#changes.notify();
    return this.refusal === undefined;
  }

  readonly #handlers: { [Name in keyof SandboxEvents]: (data: SandboxEvents[Name]) => void } = {
    hello: ({ boot }) => {
      if (this.#boot !== undefined && this.#boot !== boot) {
        this.happenings = [];
        this.series.clear();
        this.points = new Map();
      }
      this.#boot = boot;
    },
    site: (site) => {
      this.site = site;
    },
    series: (lines) => {
      for (const line of lines) this.series.set(`${line.asset} ${line.key}`, line);
      const [first] = this.series.values();
      // An asset without values is selected without a key. Select its first key once it has values.
      if (this.chosen === undefined && first) this.choose(first.asset, first.key);
      else if (this.chosen?.key === '' && this.keysOf(this.chosen.asset).length > 0) this.choose(this.chosen.asset);
    },
    chart: (chart) => {
      if (this.#isChosen(chart)) this.chart = chart;
    },
    points: ({ points, ...of }) => {
      if (!this.#isChosen(of)) return;
      const all = [...this.points, ...points].sort(([one], [other]) => one - other);
      this.points = new Map(all.slice(-MAX_POINTS));
    },
    tokens: (tokens) => {
      this.tokens = tokens;
    },
    webhooks: (webhooks) => {
      this.webhooks = webhooks;
    },
    deliveries: (deliveries) => {
      this.deliveries = deliveries;
    },
    faults: (faults) => {
      this.faults = faults;
    },
    requests: (requests) => {
      this.#happen(requests.map((request) => ({ id: `request ${request.id}`, kind: 'request', request })));
    },
    happened: (happened) => {
      this.#happen(happened.map((each) => ({ ...each, id: `sentence ${each.id}`, kind: 'sentence' })));
    },
    tick: (tick) => {
      this.tick = tick;
    },
  };

  #happen(news: Happening[]): void {
    const known = new Set(this.happenings.map(({ id }) => id));
    const added = news.filter(({ id }) => !known.has(id)).reverse();
    const all = [...added, ...this.happenings];

    this.happenings = all.sort((one, other) => timeOf(other) - timeOf(one)).slice(0, MAX_HAPPENINGS);
  }

  #isChosen({ asset, key }: Chosen): boolean {
    return this.chosen?.asset === asset && this.chosen.key === key;
  }

  #received<Name extends keyof SandboxEvents>(name: Name, data: SandboxEvents[Name]): void {
    // A newer sandbox can send unknown messages.
    this.#handlers[name]?.(data);
    this.#changes.notify();
  }
}

function timeOf(happening: Happening): number {
  return Date.parse(happening.kind === 'request' ? happening.request.at : happening.at);
}

/** Returns the reason why a request failed; `undefined` on success. */
async function request(method: string, path: string, body: unknown): Promise<string | undefined> {
  const response = await fetch(path, {
    method,
    credentials: 'omit',
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }),
  });
  if (response.ok) return undefined;
  const { errors } = (await response.json().catch(() => ({}))) as {
    errors?: { attribute?: string; message: string }[];
  };
  const [first] = errors ?? [];
  return first ? [first.attribute, first.message].filter(Boolean).join(' ') : `response ${response.status}`;
}
