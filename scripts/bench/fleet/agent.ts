import type { Clock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { RequestBudget } from '../../../src/platform/request-budget.ts';
import { Session } from '../../../src/platform/session/session.ts';
import { SessionFile } from '../../../src/platform/session/session-file.ts';
import { Uplink } from '../../../src/uplink/uplink.ts';
import { MemoryBuffer } from '../../../test/doubles/memory-buffer.ts';
import { MemoryAccess, OPTIONS } from '../../../test/uplink/plant.ts';
import type { FleetPlatform } from './platform.ts';

const BASE_URL = 'https://platform.example';
/** A value is live for twice POST_INTERVAL after its acceptance. */
const LIVE_INTERVALS = 2;

/** Keeps tokens in memory, because real writes would take time that the virtual clock does not have. */
class NoFile extends SessionFile {
  override async read() {
    return [];
  }
  override async write() {}
}

/** Control: ignores 429 except for the pause, and keeps its pace. */
class UnadaptedBudget extends RequestBudget {
  override refused(): void {}
  override outageOver(): void {}
}

export interface AgentOptions {
  number: number;
  clock: Clock;
  platform: FleetPlatform;
  postIntervalMs: number;
  requestsPerMinute: number;
  isAdapting: boolean;
  assets: number;
}

/** Records the newest delivered value of each asset. */
class FleetBuffer extends MemoryBuffer {
  readonly newestMs = new Map<number, number>();
  /** Cached, because it is read far more often than it changes. */
  #lanes: ReturnType<MemoryBuffer['lanes']> | undefined;

  constructor() {
    super();
    this.onChange(() => {
      this.#lanes = undefined;
    });
  }

  override lanes(): ReturnType<MemoryBuffer['lanes']> {
    this.#lanes ??= super.lanes();
    return this.#lanes;
  }

  override async settle(batch: number): Promise<void> {
    for (const { asset, acceptedMs } of this.inProgress.get(batch)?.live ?? []) {
      this.newestMs.set(asset, Math.max(acceptedMs, this.newestMs.get(asset) ?? 0));
    }
    await super.settle(batch);
  }
}

/**
 * A gateway with the real session, client, budget, planner and sender. Its store is a list in memory, flushed like the
 * real one.
 */
export class FleetAgent {
  readonly number: number;
  readonly #options: AgentOptions;
  readonly buffer = new FleetBuffer();
  readonly uplink: Uplink;
  readonly session: Session;
  readonly #budget: RequestBudget;
  #accepted = 0;
  readonly assets: readonly number[];

  constructor(options: AgentOptions) {
    const { number, clock, platform, requestsPerMinute, isAdapting } = options;
    this.number = number;
    this.#options = options;
    this.assets = Array.from({ length: options.assets }, (_, at) => at + 1);
    const boundary = platform.boundaryOf(number, (ms) => clock.sleep(ms));
    const log = silentLogger();
    this.session = new Session({
      redactor: new Redactor(),
      boundary,
      baseUrl: BASE_URL,
      credentials: () => ({
        client: { clientId: 'client', clientSecret: 'secret', clientAuth: 'basic' },
        user: { username: 'gateway@example.com', password: 'password' },
      }),
      file: new NoFile('/nowhere'),
      clock,
      log,
    });
    const Budget = isAdapting ? RequestBudget : UnadaptedBudget;
    this.#budget = new Budget(clock, { requestsPerMinute, requestsPerDay: 0 });
    const client = new PlatformClient({
      boundary,
      baseUrl: BASE_URL,
      tokens: this.session,
      budget: this.#budget,
      clock,
      log,
    });
    this.uplink = new Uplink(
      {
        buffer: this.buffer,
        client,
        budget: this.#budget,
        access: new MemoryAccess(clock),
        addresses: { byInstrumentation: false, of: ({ asset }) => ({ path: `/v1/assets/${asset}/values` }) },
        clock,
        log,
      },
      { ...OPTIONS, postIntervalMs: options.postIntervalMs, postMaxValues: 10 },
    );
    this.session.onChange(() => {
      if (this.session.snapshot().state === 'valid') this.uplink.tryNow();
    });
    this.uplink.onRestored((awayMs) => this.#budget.outageOver(awayMs));
  }

  async start(): Promise<void> {
    await this.session.start(new AbortController().signal);
    await this.uplink.start();
    this.#measure();
  }

  /** Adds one value per asset and interval. Values that are not posted in time become backlog. */
  #measure(): void {
    const { clock, postIntervalMs } = this.#options;
    const firstMs = clock.random() * postIntervalMs;
    const next = () => {
      const acceptedMs = clock.monotonicMs();
      this.buffer.accept(
        this.assets.map((asset) => ({
          number: this.#accepted++,
          asset,
          series: asset,
          timeMs: clock.wallMs(),
          acceptedMs,
        })),
      );
      this.buffer.flush(acceptedMs - LIVE_INTERVALS * postIntervalMs);
      clock.after(postIntervalMs, next);
    };
    clock.after(firstMs, next);
  }

  /** Returns the age of the newest delivered value, for the asset with the oldest one. */
  stalenessMs(nowMs: number): number {
    return Math.max(...this.assets.map((asset) => nowMs - (this.buffer.newestMs.get(asset) ?? 0)));
  }

  async stop(): Promise<void> {
    await Promise.all([this.uplink.stop(0), this.session.stop(0)]);
  }
}
