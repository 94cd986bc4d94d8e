/**
 * All parts that require open stores: events, uplink, sources, page and operator interfaces. Creates and connects the
 * parts in the constructor; agent.ts determines when they start and stop.
 *
 * Startup: events, uplink, sources, operations listener, control socket. Shutdown: sources first, so that accepted
 * values are complete, then uplink and events in parallel, then the operator interfaces.
 */
import { AcceptedObjects } from '../access/accepted-objects.ts';
import { certificateNotes } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import { conflictNotes } from '../base/identity-conflicts.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Configuration } from '../config/configuration.ts';
import { reloadedSettings } from '../config/reloaded-settings.ts';
import type { KeyName } from '../config/setting-keys.ts';
import { ControlServer } from '../control/control-server.ts';
import { diagnosePlatform, objectsOfTags } from '../control/diagnosis.ts';
import { findings } from '../ops/findings.ts';
import type { Metrics } from '../ops/metrics.ts';
import { healthNotes, OpsServer, type OpsSources } from '../ops/ops-server.ts';
import { Quota } from '../ops/quota.ts';
import { Rates } from '../ops/rates.ts';
import { overallState, statusReport } from '../ops/status-report.ts';
import { silentTargetNotes } from '../reactions/engine/targets.ts';
import { placeRules } from '../reactions/values/value-rules.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { certificatesInUse } from '../sources/status.ts';
import { Writer } from '../sources/writes/writer.ts';
import { fillValuesPath, PostAddresses } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { disabledNotes } from '../webhook/enablement.ts';
import { makeUplink, uplinkPace } from './agent-uplink.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { ConfigurationState } from './configuration-state.ts';
import { EventsFlow } from './events-flow.ts';
import type { Listeners, Unavailable } from './listeners.ts';
import { LiveFlow } from './live-flow.ts';
import { operatorRoutes } from './operator-routes.ts';
import type { PlatformFlow } from './platform-flow.ts';
import { SourcesFlow } from './sources-flow.ts';

export interface RunningAgentOptions {
  version: string;
  configuration: Configuration;
  buffer: BufferFlow;
  platform: PlatformFlow;
  files: ConfigurationState;
  listeners: Listeners;
  /** Configuration folder. */
  directory: string | undefined;
  environment: NodeJS.ProcessEnv;
  metrics: Metrics;
  /** Most recent lines written to `log`. */
  recentLines?: RecentLines | undefined;
  /** Path of the control socket. */
  controlPath: string;
  /** Start time of the process. */
  startedMs: number;
  startedWallMs: number;
  clock: Clock;
  log: Logger;
  reload(): Promise<void>;
  /** Called after decommissioning. The state folder cannot be used until `setup` is run. */
  onDecommissioned(): void;
}

/** Time without a response after which the store counts as stalled. */
const STORE_PATIENCE_MS = 120_000;
/** Time limit for an interrupted part to close at shutdown. */
export const CLOSE_MS = 5_000;

export class RunningAgent {
  readonly #options: RunningAgentOptions;
  #configuration: Configuration;
  readonly #writer: Writer;
  readonly #events: EventsFlow;
  readonly #addresses: PostAddresses;
  readonly #accepted: AcceptedObjects;
  readonly #uplink: Uplink;
  readonly #sources: SourcesFlow;
  readonly #live: LiveFlow;
  #ops: OpsServer | undefined;
  #control: ControlServer | undefined;
  readonly #rates: Rates;
  readonly #quota: Quota;
  #ingestedValues = 0;
  /** Whether all parts have started and the first login has been attempted. */
  isReady = false;

  constructor(options: RunningAgentOptions) {
    const { buffer, clock, configuration, listeners, log, metrics, platform } = options;
    const { settings, tags } = configuration;
    const { session } = platform;
    this.#options = options;
    this.#configuration = configuration;
    this.#rates = new Rates(options.startedMs);
    this.#quota = new Quota(platform.client, clock);
    const isReady = () => this.isReady;
    const { inbox } = buffer;
    this.#writer = new Writer({
      isOn: () => this.#configuration.settings.writes,
      find: (value) => this.#sources.tagSources.writeTarget(value),
      notes: { read: (name) => inbox.note(name), set: (name, text) => inbox.setNote(name, text) },
      onOutcome: (outcome) => metrics.writes.inc({ outcome }),
      clock,
      log,
    });
    this.#events = new EventsFlow({
      ...options,
      ...configuration,
      listener: listeners.webhook,
      writer: this.#writer,
      isReady,
    });
    this.#addresses = new PostAddresses(buffer.catalogue, settings.valuesPath, tags.tags.values());
    this.#accepted = new AcceptedObjects(buffer.access, clock);
    this.#uplink = makeUplink({
      settings,
      buffer: buffer.outgoing,
      holds: this.#events.holds,
      addresses: this.#addresses,
      platform,
      clock,
      log,
      metrics,
      onAccepted: (asset, instrumentation) => this.#accepted.note(asset, instrumentation),
      onLiveDelivered: (waitedMs) => this.#live.sampler.delivered(waitedMs),
      onRestored: () => this.#events.catchUp.readSoon(),
    });
    session.onChange(() => {
      if (session.snapshot().state !== 'valid') return;
      this.#uplink.tryNow();
      this.#events.registration.signedIn();
    });
    this.#sources = new SourcesFlow({
      settings,
      tags,
      kinds: SOURCE_KINDS,
      buffer,
      listener: listeners.ingest,
      countIngested: (source, values) => {
        this.#ingestedValues += values;
        metrics.ingested.inc({ source }, values);
      },
      brokers: this.#events.brokers,
      watch: this.#events.valueRules,
      platformMs: () => platform.client.platformClock.nowMs(),
      clock,
      log,
    });
    this.#live = this.#makeLive();
  }

  /** Starts all parts. */
  async start(): Promise<void> {
    await this.#events.start();
    await this.#uplink.start();
    await this.#placeRules();
    await this.#sources.start();
    await this.#openOperations();
  }

  #placeRules(): Promise<void> {
    const placed = placeRules(this.#configuration, (tag, value) => this.#sources.intake.seriesOf(tag, value));
    return this.#events.valueRules.replace(placed);
  }

  async #openOperations(): Promise<void> {
    const { settings } = this.#configuration;
    const { buffer, clock, controlPath, listeners, log, metrics, onDecommissioned, platform, recentLines } =
      this.#options;
    if (listeners.ops) {
      const { page, routes, sampler } = this.#live;
      sampler.start();
      const sources: OpsSources = {
        page,
        live: routes,
        clock,
        health: () => this.#health(),
        readiness: () => this.#readiness(),
        status: () => this.status(),
        metrics: async () => {
          const registry = await metrics.registry();
          return { contentType: registry.contentType, text: await registry.metrics() };
        },
      };
      this.#ops = new OpsServer(sources, listeners.ops, settings);
      this.#ops.start();
      log.info({ event: 'ops.listening', address: this.#ops.address }, 'operations listener started');
    }
    const routes = operatorRoutes({
      settings,
      buffer,
      events: this.#events,
      writer: this.#writer,
      sources: this.#sources,
      session: platform.session,
      tags: () => this.#configuration.tags.tags,
      reactions: () => this.#configuration.reactions,
      tryPosting: () => this.#uplink.tryNowOnRequest(),
      status: async () => {
        await Promise.all([this.#quota.refresh(), this.#options.files.checkFiles()]);
        return this.status();
      },
      reload: () => this.#options.reload().then(() => this.#options.files.report(this.#configuration.settings)),
      diagnose: () => this.#diagnose(),
      leave: () => onDecommissioned(),
      recentLines,
      clock,
      log,
    });
    this.#control = new ControlServer(routes, { path: controlPath, clock, log });
    await this.#control.start();
  }

  #makeLive(): LiveFlow {
    const { buffer, platform } = this.#options;
    return new LiveFlow({
      ...this.#options,
      recentLines: this.#options.recentLines,
      status: () => this.status(),
      refreshQuota: () => this.#quota.refresh(),
      standing: () => ({
        ...this.#counters(),
        backlog: buffer.bufferedValues,
        requests: platform.budget.minuteUsed,
        isOut: !['online', 'resting'].includes(this.state()),
      }),
      events: this.#events,
      sources: this.#sources,
      uplink: this.#uplink,
      tags: () => this.#configuration.tags,
      valuesPath: () => this.#configuration.settings.valuesPath,
    });
  }

  get configuration(): Configuration {
    return this.#configuration;
  }

  /** Applies a configuration part by part. Returns the keys that require a restart. */
  async apply(next: Configuration): Promise<KeyName[]> {
    const { tags, reactions } = next;
    const { buffer, log, platform } = this.#options;
    const { settings, needRestart } = reloadedSettings(this.#configuration.settings, next.settings);
    this.#configuration = { tags, reactions, settings };
    log.level = settings.logLevel;
    platform.reload(settings);
    await buffer.reload(settings);
    this.#addresses.replace(settings.valuesPath, tags.tags.values());
    this.#uplink.setPace(uplinkPace(settings));
    await this.#events.reload(tags, reactions);
    await this.#placeRules();
    this.#ops?.setAccess(settings);
    await this.#sources.reload(tags, settings);
    return needRestart;
  }

  /** Stops accepting values, commits accepted values and lets pending posts and reactions finish. */
  async stopFlows(step: StopStep, leftMs: () => number): Promise<void> {
    await step('sources', this.#sources.stop(), leftMs());
    const budgetMs = leftMs();
    const withinMs = budgetMs + CLOSE_MS;
    await Promise.all([
      step('uplink', this.#uplink.stop(budgetMs), withinMs),
      step('events', this.#events.stop(budgetMs), withinMs),
    ]);
    // Must be called after the final post.
    await step('accepted', this.#accepted.stop(), CLOSE_MS);
  }

  async stopOperations(step: StopStep): Promise<void> {
    this.#live.sampler.stop();
    await step('control', this.#control?.stop(), CLOSE_MS);
  }

  /** Content of `/status`. */
  status() {
    const { clock, startedMs } = this.#options;
    return statusReport({
      ...this.#reportedParts(),
      clock,
      startedMonotonicMs: startedMs,
      tags: () => this.#configuration.tags,
      rates: this.#rates.at(clock.monotonicMs(), this.#counters()),
      addresses: () => ({ ingest: this.#sources.listening, ops: this.#ops?.address, control: this.#control?.path }),
    });
  }

  /** Returns the parts that provide the metrics. */
  metricParts() {
    const logLinesDropped = this.#options.recentLines?.dropped ?? 0;
    return { ...this.#reportedParts(), refusedSinceSeconds: this.#options.files.refusedSinceSeconds, logLinesDropped };
  }

  #reportedParts() {
    const { buffer, files, platform, startedWallMs, version } = this.#options;
    const { settings } = this.#configuration;
    return {
      version,
      startedWallMs,
      settings,
      configuration: files.report(settings),
      buffer,
      session: platform.session,
      budget: platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      quota: this.#quota.known,
      sources: this.#sources.tagSources.reports(),
      certificates: this.#certificates(),
      identityConflicts: platform.identityConflicts.list(),
    };
  }

  /** Returns the reason why values are not accepted; `undefined` if they are accepted. */
  get unavailable(): Unavailable | undefined {
    return this.#sources.unavailable;
  }

  state(): string {
    const { buffer, platform } = this.#options;
    return overallState({ session: platform.session, uplink: this.#uplink, buffer, budget: platform.budget });
  }

  /** Returns the text for `systemctl status`: `online`, `platform unavailable, configuration rejected`. */
  statusLine(): string {
    return `${this.state()}${this.#options.files.statusSuffix}`;
  }

  sampleRates(): void {
    this.#rates.sample(this.#options.clock.monotonicMs(), this.#counters());
  }

  /** Whether all parts make progress, for the watchdog. */
  isAlive(): boolean {
    const { buffer, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const isStoreAlive = buffer.isAlive(nowMs, STORE_PATIENCE_MS);
    return isStoreAlive && this.#uplink.isAlive(nowMs) && this.#events.runner.isAlive(nowMs, STORE_PATIENCE_MS);
  }

  #counters() {
    return { ingested: this.#ingestedValues, delivered: this.#uplink.deliveredValues };
  }

  #diagnose() {
    const { clock, platform } = this.#options;
    const { settings, tags } = this.#configuration;
    const { clientApplication: application, requestsPerMinute } = settings;
    const pathOf = (asset: number) => this.#pathOf(asset);
    const { budget, client } = platform;
    const { restingUntilMs } = budget;
    const objects = objectsOfTags(tags);
    return diagnosePlatform({ client, clock, application, ...objects, requestsPerMinute, restingUntilMs, pathOf });
  }

  #pathOf(asset: number): string {
    const { settings, tags } = this.#configuration;
    const ofAsset = [...tags.tags.values()].filter((tag) => tag.asset === asset);
    return fillValuesPath(settings.valuesPath, asset, ofAsset.find((tag) => tag.instrumentation)?.instrumentation);
  }

  #certificates() {
    return certificatesInUse(this.#options.platform.certificates, this.#sources.tagSources.reports());
  }

  #health() {
    const { buffer, clock, files, platform } = this.#options;
    const problems = healthNotes('store.refused', buffer.problems);
    const { failureWatch, registration, silentTargets } = this.#events;
    const found = findings({ sources: this.#sources.tagSources.reports() });
    const notes = [
      ...healthNotes('config.refused', files.notes),
      ...found.map(({ event, subject, sentence }) => ({ code: event, text: `${subject}: ${sentence}` })),
      ...healthNotes('identity.conflict', conflictNotes(platform.identityConflicts.list())),
      ...healthNotes('certificate.expiring', certificateNotes(this.#certificates(), clock.wallMs())),
      ...healthNotes('reaction.target_silent', silentTargetNotes(silentTargets)),
      ...healthNotes('webhook.unreadable', this.#events.notes),
      ...healthNotes('webhook.stays_disabled', disabledNotes(registration.disabledBy, registration.current()?.webhook)),
      ...healthNotes('webhook.failing', registration.disabledBy === undefined ? failureWatch.notes : []),
    ];
    return { ok: problems.length === 0, problems, notes, session: platform.session.snapshot() };
  }

  #readiness() {
    const health = this.#health();
    if (!this.unavailable) return health;
    const { code, reason } = this.unavailable;
    return { ...health, ok: false, problems: [...health.problems, ...healthNotes(code, [reason])] };
  }
}

/**
 * Performs one shutdown step: waits for a part, up to `withinMs` if set, and logs errors instead of throwing. A part
 * that exceeds the limit is abandoned, because later steps, especially token revocation, are more important.
 */
export type StopStep = (name: string, work: Promise<unknown> | undefined, withinMs?: number) => Promise<void>;

export function stopSteps(log: Logger, clock: Clock): StopStep {
  return async (name, work, withinMs) => {
    const late = Promise.withResolvers<never>();
    const cancel =
      withinMs === undefined
        ? () => {}
        : clock.after(withinMs, () => late.reject(new Error(`timed out after ${withinMs / 1000} s`)));
    try {
      await Promise.race(withinMs === undefined ? [work] : [work, late.promise]);
    } catch (error) {
      log.error({ event: 'agent.stop_failed', step: name, error: messageOf(error) }, 'failed to stop a component');
    } finally {
      cancel();
    }
  };
}
