/**
 * What the page knows of the sandbox, and what it asks it to do. It asks by `/sandbox/…` as the verbs do; what comes of it is shown once
 * the stream tells it. Everything stands in this tab's memory, bounded.
 */
import type { ChartFrame, SandboxEvents, SeriesLine, SiteView } from '../../sandbox/live/sandbox-events.ts';
import { Changes } from '../stream/changes.ts';
import { type LinkState, LiveLink } from '../stream/live-link.ts';

/** Something that happened: a request, or a sentence about what was done behind the scenes. */
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
  /** Of the chosen series, by timestamp. */
  points = new Map<number, number>();
  tokens: SandboxEvents['tokens'] | undefined;
  webhooks: SandboxEvents['webhooks'] = [];
  deliveries: SandboxEvents['deliveries'] = [];
  faults: SandboxEvents['faults'] | undefined;
  tick: SandboxEvents['tick'] | undefined;
  /** Newest first. */
  happenings: readonly Happening[] = [];
  /** Why the last thing that was asked for was not done. */
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
      changed: () => this.#changes.tell(),
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
    this.#changes.tell();
  }

  /** Keys that have values, of an asset. */
  keysOf(asset: number): string[] {
    return [...this.series.values()].filter((line) => line.asset === asset).map(({ key }) => key);
  }

  lineOf({ asset, key }: Chosen): SeriesLine | undefined {
    return this.series.get(`${asset} ${key}`);
  }

  /** Asks the sandbox to do something; gives whether it did. */
  async act(method: 'POST' | 'DELETE', path: string, body?: unknown): Promise<boolean> {
    this.refusal = await ask(method, path, body).catch(String);
    this.#changes.tell();
    return this.refusal === undefined;
  }

  readonly #take: { [Name in keyof SandboxEvents]: (data: SandboxEvents[Name]) => void } = {
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
      // An asset that was chosen before it had values gets its first key with them.
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
    // Two lists, each in its order, become one.
    this.happenings = all.sort((one, other) => timeOf(other) - timeOf(one)).slice(0, MAX_HAPPENINGS);
  }

  #isChosen({ asset, key }: Chosen): boolean {
    return this.chosen?.asset === asset && this.chosen.key === key;
  }

  #received<Name extends keyof SandboxEvents>(name: Name, data: SandboxEvents[Name]): void {
    // One that this page does not know comes from a newer sandbox.
    this.#take[name]?.(data);
    this.#changes.tell();
  }
}

function timeOf(happening: Happening): number {
  return Date.parse(happening.kind === 'request' ? happening.request.at : happening.at);
}

/** Gives why it was refused; `undefined` where it was done. */
async function ask(method: string, path: string, body: unknown): Promise<string | undefined> {
  const answer = await fetch(path, {
    method,
    credentials: 'omit',
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }),
  });
  if (answer.ok) return undefined;
  const { errors } = (await answer.json().catch(() => ({}))) as { errors?: { attribute?: string; message: string }[] };
  const [first] = errors ?? [];
  return first ? [first.attribute, first.message].filter(Boolean).join(' ') : `it answers ${answer.status}`;
}
