/**
 * Event processing. The listener, the deliveries list and a broker write to the inbox; holds, reactions and the relay
 * read from it. The constructor creates the readers of the inbox first, then the parts that write to it.
 */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { OwnUser } from '../access/access-event.ts';
import { AccessFollower } from '../access/follower.ts';
import type { Clock } from '../base/clock.ts';
import type { InboundServer } from '../base/inbound/inbound-server.ts';
import { reactionBudgetBytes, webhookBudgetBytes } from '../base/inbound/memory-budget.ts';
import type { Logger } from '../base/logger.ts';
import { memoryLimitBytes } from '../base/memory-limit.ts';
import { endOrphans } from '../base/programs/family.ts';
import { type AnyBrokerSpec, Brokers } from '../broker/brokers.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Settings } from '../config/settings.ts';
import type { Source, Tag, Tags } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import { createPerformer } from '../reactions/actions.ts';
import { RecentOutputs } from '../reactions/command-output.ts';
import { ReactionRunner } from '../reactions/engine/runner.ts';
import type { SilentTarget } from '../reactions/engine/targets.ts';
import { tagNames } from '../reactions/event-facts.ts';
import { ValueRules } from '../reactions/values/value-rules.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import type { Writer } from '../sources/writes/writer.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { Remote } from '../store/store-api.ts';
import { Holds } from '../uplink/holds.ts';
import { Arrivals } from '../webhook/arrivals.ts';
import { CatchUp } from '../webhook/catch-up.ts';
import { Deliveries } from '../webhook/deliveries.ts';
import { type FailingWebhook, FailureWatch } from '../webhook/delivery-failures.ts';
import { type Filters, filtersFor, narrowedTypes } from '../webhook/filters.ts';
import { ForeignSecret } from '../webhook/foreign-secret.ts';
import type { Inbox } from '../webhook/inbox.ts';
import { RELAYED_NOTE } from '../webhook/inbox-event.ts';
import { pathOf, WebhookListener } from '../webhook/listener.ts';
import { WebhookRegistration } from '../webhook/registration.ts';
import { RegistrationFile, WEBHOOK_FILE } from '../webhook/registration-file.ts';
import { Relay } from '../webhook/relay.ts';
import { type SelfTestLine, type SelfTestTarget, sendToListener, testWebhook } from '../webhook/self-test.ts';
import { BrokerEvents } from './broker-events.ts';
import type { BufferFlow } from './buffer-flow.ts';
import { accessFeedOf, journalOf, ruleStoreOf } from './inbox-access.ts';
import type { PlatformFlow } from './platform-flow.ts';

export interface EventsFlowOptions {
  settings: Settings;
  /** Listener for deliveries. */
  listener: InboundServer | undefined;
  tags: Tags;
  reactions: readonly Reaction[];
  buffer: BufferFlow;
  platform: PlatformFlow;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  writer: Pick<Writer, 'write'>;
  /** Whether the first login was attempted. */
  isReady(): boolean;
}

/** Interval between inbox retention runs, which are divided into small steps between other calls. */
const PRUNE_EVERY_MS = 60_000;
/** Time for which `/healthz` reports an unreadable event, in milliseconds. */
const UNREADABLE_NOTE_MS = 24 * 3_600_000;

/** Creates the holds for series that the technical user currently cannot access. */
export function makeHolds(parts: { tags: Iterable<Tag>; buffer: BufferFlow; clock: Clock; log: Logger }): Holds {
  const { tags, buffer, clock, log } = parts;
  const lanes = () => buffer.outgoing.lanes();
  return new Holds({ store: buffer.access, tags, series: buffer.catalogue, lanes, clock, logger: log });
}

export class EventsFlow {
  readonly #options: EventsFlowOptions;
  readonly #inbox: Remote<Inbox>;
  /** Identifies commands started for this state folder. */
  readonly #instance: string;
  /** Identifies self-test requests. */
  readonly #selfTestMark = randomUUID();
  readonly holds: Holds;
  readonly brokers: Brokers;
  readonly registration: WebhookRegistration;
  readonly catchUp: CatchUp;
  readonly deliveries: Deliveries;
  readonly failureWatch: FailureWatch;
  readonly runner: ReactionRunner;
  readonly valueRules: ValueRules;
  readonly outputs = new RecentOutputs();
  readonly #follower: AccessFollower;
  readonly #relay: Relay | undefined;
  readonly #brokerEvents: BrokerEvents | undefined;
  readonly #listener: WebhookListener | undefined;
  readonly #stopping = new AbortController();
  #cancelPrune: () => void = () => {};
  #tags: Tags;
  /** Number of damaged events reported since startup. */
  #reportedDamaged = 0;
  /** Events of known types that could not be read since startup. */
  #unreadable: { count: number; latest: string; latestMs: number } | undefined;

  constructor(options: EventsFlowOptions) {
    const { settings, tags, buffer, platform, clock, log, metrics } = options;
    const { client, identityConflicts } = platform;
    this.#options = options;
    this.#tags = tags;
    this.#inbox = buffer.inbox;
    this.#instance = gatewayName(settings.stateDir, 'reactions');
    this.brokers = new Brokers({
      clock,
      logger: log,
      platformCaFile: settings.platformCa,
      clientId: (name) => gatewayName(settings.stateDir, name),
      nameTaken: (source) => identityConflicts.report('broker', source),
    });
    this.registration = this.#makeRegistration();

    this.holds = makeHolds({ tags: tags.tags.values(), buffer, clock, log });
    this.#follower = this.#makeFollower();
    this.runner = this.#makeRunner();
    this.#relay = this.#makeRelay();

    const arrivals = new Arrivals({
      insertMany: (events) => this.#inbox.insertMany(events),
      log,
      received: (eventType) => metrics.eventsReceived.inc({ event_type: eventType }),
      unreadable: (eventType, problem) => {
        metrics.eventsUnreadable.inc({ event_type: eventType });
        const count = (this.#unreadable?.count ?? 0) + 1;
        this.#unreadable = { count, latest: `${eventType}: ${problem}`, latestMs: clock.monotonicMs() };
      },
      inserted: () => this.#wakeReaders(),
    });
    this.valueRules = new ValueRules({ store: ruleStoreOf(this.#inbox, () => this.#wakeReaders()), clock, log });
    const registered = () => this.registration.current();
    const foreignSecret = new ForeignSecret({
      clock,
      found: () => identityConflicts.report('webhook'),
      over: () => identityConflicts.end('webhook'),
    });
    this.catchUp = new CatchUp(
      { pollMs: settings.webhookPollMs, listening: settings.webhookListen !== undefined },
      {
        platform: client,
        inbox: this.#inbox,
        arrivals,
        registered,
        lost: () => this.registration.checkSoon(),
        clock,
        log,
        listed: (identities) => foreignSecret.listed(identities),
      },
    );
    this.registration.onChecked(() => {
      this.catchUp.nowRegistered();
      this.#relay?.wake();
    });
    this.deliveries = new Deliveries({ platform: client, registered, clock });
    this.failureWatch = new FailureWatch({ platform: client, registered, clock, log });
    const { webhookFrom: from } = settings;
    const ownUser = () => this.ownUser;
    if (from) this.#brokerEvents = new BrokerEvents({ ...options, from, brokers: this.brokers, arrivals, ownUser });
    else this.#listener = this.#makeListener(arrivals, foreignSecret);
  }

  /** Nodes that disappeared, for `status`. */
  lostNodes(): { node: number; since: string }[] {
    return this.#follower.lostNodes();
  }

  /** Sentences for the notes in `/healthz`. */
  get notes(): string[] {
    const { count, latest, latestMs } = this.#unreadable ?? {};
    if (latestMs === undefined || this.#options.clock.monotonicMs() - latestMs > UNREADABLE_NOTE_MS) return [];
    const events = count === 1 ? '1 event' : `${count} events`;
    return [`${events} could not be read, reactions did not run (latest: ${latest}); see \`tagferry events ls\``];
  }

  /** Called when the inbox contains new events. */
  #wakeReaders(): void {
    this.#relay?.wake();
    this.#follower.wake();
    this.runner.wake();
  }

  #makeRegistration(): WebhookRegistration {
    const { settings, reactions, platform, clock, log } = this.#options;
    const options = {
      url: settings.webhookUrl,
      secret: settings.webhookSecret,
      eventTypes: settings.webhookEvents,
      properties: this.#filters(reactions),
      application: settings.clientApplication,
      reenable: settings.webhookReenable,
    };
    const file = new RegistrationFile(join(settings.stateDir, WEBHOOK_FILE));
    const { client, redactor } = platform;
    return new WebhookRegistration(options, { platform: client, file, clock, log, redactor });
  }

  #makeFollower(): AccessFollower {
    const { buffer, clock, log, settings } = this.#options;
    return new AccessFollower({
      feed: accessFeedOf(this.#inbox),
      store: buffer.access,
      holds: this.holds,
      tags: () => this.#tags.tags.values(),
      user: () => this.ownUser,
      isRelayed: settings.webhookFrom !== undefined,
      clock,
      logger: log,
    });
  }

  #makeRunner(): ReactionRunner {
    const { tags, reactions, platform, clock, log, metrics, isReady } = this.#options;
    return new ReactionRunner({
      journal: journalOf(this.#inbox),
      reactions,
      tagOf: tagNames(tags.tags.values()),
      perform: createPerformer({
        outputs: this.outputs,
        clock,
        logger: log,
        instance: this.#instance,
        publish: (broker, topic, payload, publishing) => this.brokers.publish(broker, topic, payload, publishing),
        write: (request) => this.#options.writer.write(request),
      }),
      clock,
      logger: log,
      now: () => platform.eventTime(isReady()),
      memoryBytes: reactionBudgetBytes(memoryLimitBytes()),
      onOutcome: (name, outcome) => metrics.reactions.inc({ name, outcome }),
    });
  }

  #makeRelay(): Relay | undefined {
    const { settings, clock, log, metrics } = this.#options;
    if (!settings.webhookTo) return undefined;
    const { broker, topic } = settings.webhookTo;
    return new Relay({
      inbox: this.#inbox,
      publish: (body, headers, id, signal) =>
        this.brokers.publish(broker, topic, body, { headers, id, mustKeep: true, signal }),
      secrets: () => this.registration.secrets(),
      clock,
      log,
      relayed: (count) => metrics.eventsRelayed.inc({}, count),
    });
  }

  #makeListener(arrivals: Arrivals, foreignSecret: ForeignSecret): WebhookListener | undefined {
    const { settings, listener: server, clock, log, metrics } = this.#options;
    if (!server) return undefined;
    return new WebhookListener(
      {
        server,
        path: pathOf(settings.webhookUrl),
        acceptSha1: settings.webhookAcceptSha1,
        keepsSignatures: settings.webhookTo !== undefined,
        limits: { bytesUnderWay: webhookBudgetBytes(memoryLimitBytes()) },
      },
      {
        arrivals,
        secrets: () => this.registration.secrets(),
        clock,
        log,
        rejected: (reason) => metrics.eventsRejected.inc({ reason }),
        forged: (body) => {
          if (foreignSecret.rejected(body)) this.catchUp.readSoon();
        },
        verified: () => foreignSecret.accepted(),
        isSelfTest: (mark) => mark === this.#selfTestMark,
      },
    );
  }

  /** Starts the holds first, so that no held value is posted before the holds are loaded. */
  async start(): Promise<void> {
    const stored = await this.#options.buffer.access.load();
    this.holds.start(stored);
    await this.#setBrokers(this.#options.tags);
    // Load the secret before the listener accepts deliveries, so that no delivery is rejected.
    await this.registration.load();
    this.#brokerEvents?.subscribe();
    if (this.#relay) await this.#relay.start();
    // Delete the position of a relay that is no longer configured.
    else if (await this.#inbox.note(RELAYED_NOTE)) await this.#inbox.setNote(RELAYED_NOTE, '');
    if (!this.#stopping.signal.aborted) this.#listener?.start();
    // Terminate commands left running by a killed agent before their reactions run again.
    await endOrphans(this.#instance);
    this.#follower.start(stored);
    this.runner.start();
    await this.registration.start(this.#stopping.signal);
    this.catchUp.start(this.#stopping.signal);
    this.failureWatch.start();
    this.#schedulePrune();
  }

  /** User from TECHNICAL_USER_ID or the token response; `undefined` if both are unknown. */
  get ownUser(): OwnUser | undefined {
    const { settings, platform } = this.#options;
    if (settings.technicalUserId !== undefined) return { id: settings.technicalUserId, from: 'setting' };
    const id = platform.session.userId;
    return id === undefined ? undefined : { id, from: 'token' };
  }

  #filters(reactions: readonly Reaction[]): Filters {
    const { log, settings } = this.#options;
    const { webhookEvents } = settings;
    const explicit = settings.webhookProperties ?? {};
    for (const type of narrowedTypes(reactions, webhookEvents, explicit)) {
      const hint = `Add the attributes that the reactions require, or set ${type}=* in WEBHOOK_PROPERTIES.`;
      const fields = { event: 'webhook.filter_narrow', eventType: type, hint };
      log.warn(fields, 'WEBHOOK_PROPERTIES excludes changes that a reaction requires');
    }
    return filtersFor(reactions, webhookEvents, explicit);
  }

  async #setBrokers(tags: Tags): Promise<void> {
    const kinds = SOURCE_KINDS.filter(({ publishes }) => publishes).map(({ kind }) => kind);
    const sources = [...tags.sources.values()].filter((source) => kinds.includes(source.kind));
    await this.brokers.set(sources as Source<AnyBrokerSpec>[]);
  }

  /** Applies new rules, tags and brokers. */
  async reload(tags: Tags, reactions: readonly Reaction[]): Promise<void> {
    this.runner.setReactions(reactions, tagNames(tags.tags.values()));
    this.registration.setFilters(this.#filters(reactions));
    this.#tags = tags;
    this.holds.setTags(tags.tags.values());
    await this.#setBrokers(tags);
    this.#brokerEvents?.reload(tags, reactions);
  }

  get failingWebhook(): FailingWebhook | undefined {
    return this.failureWatch.failing;
  }

  get silentTargets(): readonly SilentTarget[] {
    return this.runner.silentTargets;
  }

  /** Listener address for `status`; `undefined` if it is disabled. */
  get listening(): string | undefined {
    return this.#options.listener?.address;
  }

  /** `webhook test`: tests the listener directly, then through WEBHOOK_URL. */
  testWebhook(): Promise<SelfTestLine[]> {
    const { settings, listener, platform } = this.#options;
    const { webhookUrl, webhookTlsCert } = settings;
    const address = listener?.socketAddress;
    const targets: SelfTestTarget[] = [];
    if (address) {
      const send = sendToListener(address, pathOf(webhookUrl), webhookTlsCert !== undefined);
      targets.push({ name: 'listener', address: this.listening ?? '', send });
    }
    if (webhookUrl) targets.push({ name: 'public', address: webhookUrl, send: platform.senderTo(webhookUrl) });
    return testWebhook(targets, this.registration.secrets()[0], this.#selfTestMark);
  }

  #schedulePrune(): void {
    this.#cancelPrune = this.#options.clock.after(PRUNE_EVERY_MS, () => {
      const pruned = this.#inbox.prune().then(() => this.#reportDamaged());
      void pruned.catch(() => {}).finally(() => this.#schedulePrune());
    });
  }

  async #reportDamaged(): Promise<void> {
    const { damaged } = await this.#inbox.stats();
    if (damaged <= this.#reportedDamaged) return;
    this.#reportedDamaged = damaged;
    const fields = { event: 'inbox.damaged', events: damaged };
    this.#options.log.error(fields, 'damaged events removed from the inbox, requesting them from the platform again');
  }

  /** Waits for running reactions within the budget. The other reactions run after the next startup. */
  async stop(budgetMs: number): Promise<void> {
    this.#cancelPrune();
    this.#stopping.abort(new Error('the agent is stopping'));
    await Promise.all([
      this.#listener?.stop(),
      this.#relay?.stop(),
      this.catchUp.stop(),
      this.failureWatch.stop(),
      this.registration.stop(),
      this.valueRules.stop().then(() => this.runner.stop(budgetMs)),
      this.#follower.stop(),
    ]);
    await this.brokers.stop();
    await this.holds.stop();
  }
}
