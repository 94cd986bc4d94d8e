/**
 * The daemon as a whole: makes the parts, starts them in order, stops them in reverse. It decides nothing itself.
 *
 * Start: stores (recovery), holds and reactions, session, uplink, then the doors: webhook, values, operations, control.
 * READY when all of them stand and the first login was tried. Stop: doors first, what was taken in is committed, posts
 * under way and reactions that run may finish, tokens are revoked, files are closed.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import type { Configuration } from '../config/configuration.ts';
import type { Settings } from '../config/settings.ts';
import { messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { compressing } from '../uplink/compression.ts';
import { fillValuesPath } from '../uplink/post.ts';
import { Uplink } from '../uplink/uplink.ts';
import { BufferFlow } from './buffer-flow.ts';
import { bufferRoutes } from './buffer-routes.ts';
import { controlRoutes } from './control-routes.ts';
import { ControlServer } from './control-server.ts';
import { diagnosePlatform } from './diagnosis.ts';
import { EventsFlow } from './events-flow.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { OpsServer } from './ops-server.ts';
import { PlatformFlow } from './platform-flow.ts';
import { Quota } from './quota.ts';
import { Rates } from './rates.ts';
import { ServiceManager } from './service-manager.ts';
import { SourcesFlow } from './sources-flow.ts';
import { overallState, sessionReport, statusReport } from './status-report.ts';
import { trustedNowMs } from './trusted-time.ts';

export interface DaemonOptions {
  version: string;
  configuration: Configuration;
  /** Reads the configuration again; throws `ConfigurationError`. */
  readConfiguration(): Configuration;
  clock: Clock;
  log: Logger;
  environment: NodeJS.ProcessEnv;
  /** Something that cannot be waited out ended the store thread. */
  onFatal(error: Error): void;
}

/** INTERFACE.md, "Signals": posts under way, reactions and the revocation share it. */
const STOP_BUDGET_MS = 20_000;
/** Kept of it for the revocation, whatever the posts do. */
const REVOKE_BUDGET_MS = 5_000;
/** READY waits for the first login to be tried, but not for a platform that does not answer. */
const FIRST_LOGIN_MS = 10_000;
const STATUS_EVERY_MS = 10_000;
/** A store that has answered nothing for so long is stuck, not slow. */
const STORE_PATIENCE_MS = 120_000;

export class Daemon {
  readonly #options: DaemonOptions;
  #configuration: Configuration;
  readonly #metrics: Metrics;
  readonly #buffer: BufferFlow;
  readonly #platform: PlatformFlow;
  readonly #service: ServiceManager;
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  readonly #startedWallMs: number;
  #events!: EventsFlow;
  #uplink!: Uplink;
  #sources!: SourcesFlow;
  #ops: OpsServer | undefined;
  #control: ControlServer | undefined;
  #cancelStatus: () => void = () => {};
  readonly #rates: Rates;
  readonly #quota: Quota;
  #ingestedValues = 0;
  #stopped: Promise<void> | undefined;
  #ready = false;

  constructor(options: DaemonOptions) {
    const { configuration, clock, log, version, environment } = options;
    this.#options = options;
    this.#configuration = configuration;
    this.#startedMs = clock.monotonicMs();
    this.#startedWallMs = clock.wallMs();
    this.#metrics = createMetrics(() => this.#figures());
    const { settings } = configuration;
    this.#buffer = new BufferFlow({
      settings,
      clock,
      log,
      metrics: this.#metrics,
      onDeath: options.onFatal,
      trustedNowMs: () => trustedNowMs(clock, this.#platform.client.platformClock),
    });
    this.#platform = new PlatformFlow({
      settings,
      version,
      clock,
      log,
      onRenewal: (grant) => this.#metrics.renewals.inc({ grant }),
    });
    this.#service = new ServiceManager({ clock, log, environment });
    this.#rates = new Rates(this.#startedMs);
    this.#quota = new Quota(this.#platform.client, clock);
  }

  async start(): Promise<void> {
    const { configuration, clock, log, version } = this.#options;
    const { settings, tags, reactions } = configuration;
    const { client, session, budget } = this.#platform;
    await this.#buffer.start();
    this.#events = new EventsFlow({
      settings,
      tags,
      reactions,
      buffer: this.#buffer,
      client,
      sendToPublic: (url) => this.#platform.senderTo(url),
      clock,
      log,
      metrics: this.#metrics,
      trustedNowMs: () => trustedNowMs(clock, client.platformClock),
    });
    this.#uplink = new Uplink(
      {
        buffer: this.#buffer.outgoing,
        access: this.#events.holds,
        client: settings.postGzip ? compressing(client) : client,
        budget,
        clock,
        log,
        pathOf: (asset) => this.#pathOf(asset),
        hooks: {
          posted: (outcome) => this.#metrics.posts.inc({ outcome }),
          delivered: (values) => this.#metrics.delivered.inc(values),
          quarantined: (reason, values) => this.#metrics.quarantined.inc({ reason }, values),
        },
      },
      {
        ...paceOf(settings),
        postMaxBytes: settings.postMaxBytes,
        backfillValuesPerSecond: settings.backfillValuesPerSecond,
      },
    );
    this.#uplink.onBack(() => this.#events.catchUp.readSoon());
    session.onChange(() => {
      if (session.snapshot().state === 'valid') this.#uplink.tryNow();
    });
    this.#sources = new SourcesFlow({
      settings,
      tags,
      catalogue: this.#buffer.catalogue,
      append: (columns) => this.#buffer.committer.append(columns),
      countIngested: (source, values) => {
        this.#ingestedValues += values;
        this.#metrics.ingested.inc({ source }, values);
      },
      brokers: this.#events.brokers,
      clock,
      log,
    });
    await this.#events.start();
    await session.start(this.#stopping.signal);
    await this.#uplink.start(this.#stopping.signal);
    await this.#sources.start();
    await this.#openOperations();
    await this.#firstLogin();
    this.#ready = true;
    log.info({ event: 'agent.ready', version, state: this.#state(), pid: process.pid }, 'tagferry is ready');
    await this.#service.ready(this.#statusLine());
    this.#service.startWatchdog(() => this.#isAlive());
    this.#keepStatus();
  }

  async #openOperations(): Promise<void> {
    const { settings } = this.#configuration;
    if (settings.opsListen) {
      this.#ops = new OpsServer({
        health: () => this.#health(),
        readiness: () => this.#readiness(),
        status: () => this.status(),
        metrics: async () => ({
          contentType: this.#metrics.registry.contentType,
          text: await this.#metrics.registry.metrics(),
        }),
      });
      await this.#ops.start(settings.opsListen);
      this.#options.log.info({ event: 'ops.listening', address: this.#ops.address }, 'Listening for operators');
    }
    this.#control = new ControlServer({
      ...controlRoutes({
        buffer: this.#buffer,
        events: this.#events,
        session: this.#platform.session,
        status: async () => {
          await this.#quota.refresh();
          return this.status();
        },
        reload: () => this.reload(),
        diagnose: () => this.#diagnose(),
        setLogLevel: (level) => {
          this.#options.log.level = level;
        },
      }),
      ...bufferRoutes({
        flow: this.#buffer,
        tags: () => this.#configuration.tags.tags,
        intake: this.#sources.intake,
        clock: this.#options.clock,
        isHeld: (asset) => this.#events.holds.isHeld(asset),
      }),
    });
    await this.#control.start(this.#controlPath());
  }

  /** systemd makes the runtime folder for the service; elsewhere the socket stands beside the state. */
  #controlPath(): string {
    const runtime = this.#options.environment.RUNTIME_DIRECTORY?.split(':')[0];
    const folder = runtime && existsSync(runtime) ? runtime : this.#configuration.settings.stateDir;
    return join(folder, 'control.sock');
  }

  /** Waits until the first login has succeeded or failed, for a while. */
  async #firstLogin(): Promise<void> {
    const { session } = this.#platform;
    const { clock } = this.#options;
    const tried = () => ['valid', 'waiting', 'revoked'].includes(session.snapshot().state);
    await new Promise<void>((resolve) => {
      const forget = session.onChange(() => tried() && done());
      const cancel = clock.after(FIRST_LOGIN_MS, () => done());
      const done = () => {
        forget();
        cancel();
        resolve();
      };
      if (tried()) done();
    });
  }

  /** SIGHUP. A configuration with a problem leaves the old one in force. */
  async reload(): Promise<void> {
    const { log } = this.#options;
    await this.#service.reloading();
    try {
      const next = this.#options.readConfiguration();
      const { settings, tags, reactions } = next;
      this.#configuration = { ...next, settings: { ...settings, stateDir: this.#configuration.settings.stateDir } };
      log.level = settings.logLevel;
      this.#platform.reload(settings);
      this.#buffer.committer.setPace({ intervalMs: settings.commitIntervalMs, values: settings.commitValues });
      this.#uplink.setPace(paceOf(settings));
      await this.#events.reload(tags, reactions);
      await this.#sources.reload(tags);
      log.info(
        { event: 'config.reloaded', tags: tags.tags.size, reactions: reactions.length },
        'the configuration was read again',
      );
    } catch (error) {
      log.error(
        { event: 'config.refused', error: messageOf(error) },
        'the configuration has a problem, the old one stays in force',
      );
      throw error;
    } finally {
      await this.#service.ready(this.#statusLine());
    }
  }

  status() {
    const { clock, version } = this.#options;
    const { settings } = this.#configuration;
    return statusReport({
      version,
      clock,
      startedWallMs: this.#startedWallMs,
      startedMonotonicMs: this.#startedMs,
      tags: () => this.#configuration.tags,
      stateDir: settings.stateDir,
      platformUrl: settings.platformUrl,
      webhookUrl: settings.webhookUrl,
      buffer: this.#buffer,
      session: this.#platform.session,
      budget: this.#platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      rates: this.#rates.at(clock.monotonicMs(), this.#counters()),
      quota: this.#quota.known,
      addresses: () => ({ ingest: this.#sources.listening, ops: this.#ops?.address, control: this.#control?.path }),
    });
  }

  /** Stops in order; every failure on the way is reported, none ends it. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#options;
    const startMs = clock.monotonicMs();
    const left = () => Math.max(0, STOP_BUDGET_MS - REVOKE_BUDGET_MS - (clock.monotonicMs() - startMs));
    const step = async (name: string, work: Promise<unknown> | undefined) => {
      try {
        await work;
      } catch (error) {
        log.error({ event: 'agent.stop_failed', step: name, error: messageOf(error) }, 'a part did not stop cleanly');
      }
    };
    this.#cancelStatus();
    log.info({ event: 'agent.stopping' }, 'tagferry stops');
    void this.#service.stopping();
    await step('sources', this.#sources?.stop());
    await Promise.all([step('uplink', this.#uplink?.stop(left())), step('events', this.#events?.stop(left()))]);
    await step('session', this.#platform.stop(Math.max(REVOKE_BUDGET_MS, left())));
    this.#stopping.abort(new Error('the agent stops'));
    await step('control', this.#control?.stop());
    await step('ops', this.#ops?.stop());
    await step('buffer', this.#buffer.stop());
    log.info({ event: 'agent.stopped' }, 'tagferry has stopped');
  }

  #counters() {
    return { ingested: this.#ingestedValues, delivered: this.#uplink.snapshot().deliveredValues };
  }

  #diagnose() {
    const { client } = this.#platform;
    const assets = [...this.#configuration.tags.tags.values()].map((tag) => tag.asset);
    return diagnosePlatform({ client, clock: this.#options.clock, assets, pathOf: (asset) => this.#pathOf(asset) });
  }

  #pathOf(asset: number): string {
    return fillValuesPath(this.#configuration.settings.valuesPath, asset, this.#instrumentationOf(asset));
  }

  #instrumentationOf(asset: number): number | undefined {
    for (const tag of this.#configuration.tags.tags.values()) {
      if (tag.asset === asset && tag.instrumentation !== undefined) return tag.instrumentation;
    }
    return undefined;
  }

  #state(): string {
    return overallState({ session: this.#platform.session, uplink: this.#uplink, buffer: this.#buffer });
  }

  #health() {
    const problems = [...this.#buffer.problems];
    return { ok: problems.length === 0, problems, session: sessionReport(this.#platform.session) };
  }

  #readiness() {
    const health = this.#health();
    return this.#ready ? health : { ...health, ok: false, problems: [...health.problems, 'the agent is starting'] };
  }

  #isAlive(): boolean {
    const nowMs = this.#options.clock.monotonicMs();
    return this.#buffer.isAlive(nowMs, STORE_PATIENCE_MS) && this.#uplink.isAlive(nowMs);
  }

  #keepStatus(): void {
    this.#cancelStatus = this.#options.clock.after(STATUS_EVERY_MS, () => {
      this.#rates.sample(this.#options.clock.monotonicMs(), this.#counters());
      void this.#service.status(this.#statusLine());
      this.#keepStatus();
    });
  }

  /** `online, 1,204 values/min, backlog 0` */
  #statusLine(): string {
    const { deliveredPerMinute: rate } = this.#rates.at(this.#options.clock.monotonicMs(), this.#counters());
    const numbers = new Intl.NumberFormat('en');
    const backlog = this.#buffer.facts.segmentValues;
    return `${this.#state()}, ${numbers.format(rate)} values/min, backlog ${numbers.format(backlog)}`;
  }

  #figures() {
    const { facts } = this.#buffer;
    const session = this.#platform.session.snapshot();
    return {
      bufferValues: this.#buffer.bufferedValues,
      bufferBytes: facts.disk.bytes,
      oldestAgeSeconds: facts.oldestAgeMs / 1000,
      assetsHeld: this.#events?.holds.heldCount() ?? 0,
      session,
      requestsToday: this.#platform.budget.stats().dayUsed,
      quarantined: facts.quarantined,
      waitingCommit: this.#buffer.committer.waitingValues,
      setAside: this.#buffer.setAside,
    };
  }
}

function paceOf(settings: Settings) {
  const { postIntervalMs, postMaxValues, postConcurrency: concurrency, drainOrder } = settings;
  return { postIntervalMs, postMaxValues, concurrency, drainOrder };
}
