/**
 * One subscription of a server, driven service by service: a notification is acknowledged when its values are on disk, and until then the
 * server keeps it. So whatever ends (the connection, this process, the gateway), who comes next takes the subscription over (`take`),
 * has sent again what was not acknowledged, and gets what has waited in the queues meanwhile.
 *
 *   open ──► taken over, or made anew ──► items put right ──► notifications, until the session is over
 */
import {
  AttributeIds,
  DataChangeFilter,
  DataChangeNotification,
  DataChangeTrigger,
  DeadbandType,
  MonitoringMode,
  type NotificationMessage,
  resolveNodeId,
  StatusChangeNotification,
  type StatusCode,
  StatusCodes,
  TimestampsToReturn,
} from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import { type Item, type KeptItem, type KeptSubscription, keyOf, type ReadValue } from './protocol.ts';
import { isOverflow, readingOf } from './readings.ts';
import { OversizedMessage, type Session } from './session.ts';

/** What a server gave in one message. */
export interface Notified {
  sequence: number;
  values: ReadValue[];
  /** Values of which the server says that others before them were lost in its queue. */
  overflows: number;
}

export interface SubscriptionOwner {
  /** Made, taken over or changed. */
  known(subscription: Omit<KeptSubscription, 'stored'>, isNew: boolean): void;
  refused(items: readonly (readonly [item: number, why: string])[]): void;
  notified(message: Notified): void;
  /** Messages that the server no longer had. */
  lost(messages: number): void;
  /** Resolves when more may be asked for. */
  ready(): Promise<void>;
  /** Rejects when the session is over. */
  pause(ms: number): Promise<void>;
}

const MIN_PUBLISHING_MS = 100;
const MAX_PUBLISHING_MS = 1_000;
/** Without values the server says so often that it is there. */
const KEEP_ALIVE_MS = 5_000;
/** How long a server is asked to keep what nobody fetches: an outage of the gateway. */
const LIFETIME_MS = 3_600_000;
/** The same where nobody may take a subscription over. */
const SHORT_LIFETIME_MS = 60_000;
const MAX_VALUES_OF_MESSAGE = 1_000;
/** Requests that wait at the server, so that it always has one to answer. */
const REQUESTS_UNDER_WAY = 2;
const TRY_REFUSED_MS = 60_000;
const SERVER_START = 'i=2257';

type Handles = Map<number, { key: string; monitoredItem: number; items: readonly number[] }>;

export class Subscription {
  readonly #session: Session;
  readonly #owner: SubscriptionOwner;
  readonly #wanted: Map<string, { item: Item; places: number[] }>;
  readonly #handles: Handles = new Map();
  readonly #acknowledged: number[] = [];
  /** Of the last message that was taken. */
  #sequence: number | undefined;
  #id = 0;
  #serverStartMs = 0;
  #nextHandle = 1;
  #patienceMs = 0;
  /** Messages are followed one after the other, though several requests are under way. */
  #turn: Promise<void> = Promise.resolve();
  #hasRefused = false;

  constructor(session: Session, items: readonly Item[], owner: SubscriptionOwner) {
    this.#session = session;
    this.#owner = owner;
    this.#wanted = new Map();
    for (const [place, item] of items.entries()) {
      const key = keyOf(item);
      const known = this.#wanted.get(key);
      if (known) known.places.push(place);
      else this.#wanted.set(key, { item, places: [place] });
    }
  }

  /**
   * Takes `kept` over, else creates a subscription. `given`: sequence number of the latest message that the agent has; those beyond
   * `kept.stored` are acknowledged when they are on disk. `mayTransfer`: the server lets another session take the subscription over.
   */
  async open(kept: KeptSubscription | undefined, given: number | undefined, mayTransfer: boolean): Promise<void> {
    this.#serverStartMs = await this.#readServerStart();
    const isTaken = kept !== undefined && kept.serverStartMs === this.#serverStartMs && (await this.#take(kept, given));
    if (!isTaken) await this.#make(mayTransfer ? LIFETIME_MS : SHORT_LIFETIME_MS);
    await this.#putItemsRight();
    this.#tell(!isTaken);
  }

  #tell(isNew: boolean): void {
    const items = [...this.#handles].map(([handle, { key, monitoredItem }]): KeptItem => [key, handle, monitoredItem]);
    this.#owner.known({ id: this.#id, serverStartMs: this.#serverStartMs, items }, isNew);
  }

  get id(): number {
    return this.#id;
  }

  /** A message is on disk: the server may forget it. */
  stored(sequence: number): void {
    this.#acknowledged.push(sequence);
  }

  /** Takes notifications until the session is over; rejects with why. */
  async run(): Promise<never> {
    const fetching = Array.from({ length: REQUESTS_UNDER_WAY }, () => this.#fetch());
    const all = [this.#session.broken, this.#tryRefused(), ...fetching];
    // The others fail with the first, each in its own time.
    for (const one of all) one.catch(() => {});
    return await Promise.race(all);
  }

  /** A node that is not there may come: servers load their models after their start. */
  async #tryRefused(): Promise<never> {
    for (;;) {
      await this.#owner.pause(TRY_REFUSED_MS);
      if (!this.#hasRefused) continue;
      await this.#putItemsRight();
      this.#tell(false);
    }
  }

  async #fetch(): Promise<never> {
    for (;;) {
      await this.#owner.ready();
      const acknowledged = this.#acknowledged
        .splice(0)
        .map((sequenceNumber) => ({ subscriptionId: this.#id, sequenceNumber }));
      const { subscriptionId, notificationMessage } = await this.#session.publish(acknowledged, this.#patienceMs);
      if (subscriptionId !== this.#id) continue;
      this.#turn = this.#turn.then(() => this.#follow(notificationMessage));
      await this.#turn;
    }
  }

  /** What is missing before a message is asked for first: one series is told in its order. */
  async #follow(message: NotificationMessage): Promise<void> {
    const { sequenceNumber, notificationData } = message;
    // Nothing to tell: its number is that of the next message.
    if (!notificationData || notificationData.length === 0) return;
    if (this.#sequence !== undefined) await this.#fetchMissing(nextOf(this.#sequence), sequenceNumber);
    this.#give(message);
  }

  async #fetchMissing(from: number, until: number): Promise<void> {
    let lost = 0;
    for (let sequence = from; isBefore(sequence, until) && lost < MAX_VALUES_OF_MESSAGE; sequence = nextOf(sequence)) {
      if (!(await this.#fetchAgain(sequence))) lost++;
    }
    if (lost > 0) this.#owner.lost(lost);
  }

  async #fetchAgain(sequence: number): Promise<boolean> {
    try {
      const { notificationMessage } = await this.#session.republish(this.#id, sequence);
      this.#give(notificationMessage);
      return true;
    } catch (error) {
      if (error instanceof OversizedMessage) throw error;
      return false;
    }
  }

  #give({ sequenceNumber, notificationData }: NotificationMessage): void {
    this.#sequence = sequenceNumber;
    const values: ReadValue[] = [];
    let overflows = 0;
    for (const data of notificationData ?? []) {
      // Told to whoever had it before.
      if (data instanceof StatusChangeNotification && data.status.isGood()) continue;
      if (data instanceof StatusChangeNotification) throw new Error(`the subscription ended (${data.status.name})`);
      if (!(data instanceof DataChangeNotification)) continue;
      for (const { clientHandle, value } of data.monitoredItems ?? []) {
        if (isOverflow(value)) overflows++;
        for (const place of this.#handles.get(clientHandle)?.items ?? []) values.push([place, ...readingOf(value)]);
      }
    }
    this.#owner.notified({ sequence: sequenceNumber, values, overflows });
  }

  async #readServerStart(): Promise<number> {
    const { value } = await this.#session.raw.read({ nodeId: SERVER_START, attributeId: AttributeIds.Value });
    return value.value instanceof Date ? value.value.getTime() : 0;
  }

  async #take({ id, items, stored }: KeptSubscription, given = stored): Promise<boolean> {
    const { results } = await this.#session.transfer(id).catch(() => ({ results: null }));
    const [result] = results ?? [];
    if (!result?.statusCode.isGood()) return false;
    this.#id = id;
    this.#patienceMs = patienceOf(MAX_PUBLISHING_MS, KEEP_ALIVE_MS / MIN_PUBLISHING_MS);
    for (const [key, handle, monitoredItem] of items) {
      this.#handles.set(handle, { key, monitoredItem, items: this.#wanted.get(key)?.places ?? [] });
      this.#nextHandle = Math.max(this.#nextHandle, handle + 1);
    }
    this.#sequence = given;
    const available = [...(result.availableSequenceNumbers ?? [])].sort((one, other) =>
      isBefore(one, other) ? -1 : 1,
    );
    for (const sequence of available) {
      const isBeyond = (other: number | undefined) => other === undefined || isBefore(other, sequence);
      if (!isBeyond(stored)) this.stored(sequence);
      else if (!isBeyond(given)) continue;
      else if (!(await this.#fetchAgain(sequence))) this.#owner.lost(1);
    }
    return true;
  }

  async #make(lifetimeMs: number): Promise<void> {
    const fastest = Math.min(...[...this.#wanted.values()].map(({ item }) => item.samplingMs));
    const publishingMs = Math.min(Math.max(fastest, MIN_PUBLISHING_MS), MAX_PUBLISHING_MS);
    const keepAlives = Math.ceil(KEEP_ALIVE_MS / publishingMs);
    const made = await this.#session.raw.createSubscription({
      requestedPublishingInterval: publishingMs,
      requestedMaxKeepAliveCount: keepAlives,
      requestedLifetimeCount: Math.ceil(lifetimeMs / publishingMs),
      maxNotificationsPerPublish: MAX_VALUES_OF_MESSAGE,
      publishingEnabled: true,
      priority: 0,
    });
    this.#id = made.subscriptionId;
    this.#patienceMs = patienceOf(made.revisedPublishingInterval, made.revisedMaxKeepAliveCount);
    this.#handles.clear();
    this.#sequence = undefined;
  }

  /** What nobody wants any more goes, what is new is added; the others keep what waits for them. */
  async #putItemsRight(): Promise<void> {
    const there = new Set([...this.#handles.values()].map(({ key }) => key));
    const gone = [...this.#handles].filter(([, { items }]) => items.length === 0);
    await this.#session.inBatches(gone, async (some) => {
      const monitoredItemIds = some.map(([, { monitoredItem }]) => monitoredItem);
      await this.#session.raw.deleteMonitoredItems({ subscriptionId: this.#id, monitoredItemIds });
      for (const [handle] of some) this.#handles.delete(handle);
    });
    const refused: (readonly [number, string])[] = [];
    const fresh = [...this.#wanted]
      .filter(([key]) => !there.has(key))
      .map(([key, { item, places }]) => ({ key, item, places }));
    await this.#session.inBatches(fresh, async (some) => {
      const answers = await this.#monitor(some.map(({ item }) => item));
      for (const [at, { key, places }] of some.entries()) {
        const answer = answers[at]!;
        if ('why' in answer) refused.push(...places.map((place) => [place, answer.why] as const));
        else this.#handles.set(answer.handle, { key, monitoredItem: answer.monitoredItem, items: places });
      }
    });
    this.#hasRefused = refused.length > 0;
    this.#owner.refused(refused);
  }

  /** A filter that the server does not have for a value is left out: the agent's own dead band does the rest. */
  async #monitor(items: readonly Item[]): Promise<Monitored[]> {
    const first = await this.#createItems(items, true);
    const again = [...first.entries()].filter(([, one]) => 'isFilter' in one && one.isFilter).map(([at]) => at);
    if (again.length === 0) return first;
    const second = await this.#createItems(
      again.map((at) => items[at]!),
      false,
    );
    for (const [place, at] of again.entries()) first[at] = second[place]!;
    return first;
  }

  async #createItems(items: readonly Item[], withFilter: boolean): Promise<Monitored[]> {
    const handles = items.map(() => this.#nextHandle++);
    const itemsToCreate = items.map((item, at) => ({
      itemToMonitor: {
        nodeId: resolveNodeId(item.node),
        attributeId: AttributeIds.Value,
        ...(item.index === undefined ? {} : { indexRange: new NumericRange(String(item.index)) }),
      },
      monitoringMode: MonitoringMode.Reporting,
      requestedParameters: {
        clientHandle: handles[at]!,
        samplingInterval: item.samplingMs,
        queueSize: item.queueSize,
        discardOldest: true,
        filter: withFilter ? filterOf(item) : null,
      },
    }));
    const { results } = await this.#session.raw.createMonitoredItems({
      subscriptionId: this.#id,
      timestampsToReturn: TimestampsToReturn.Both,
      itemsToCreate,
    });
    return items.map((_, at) => {
      const { statusCode, monitoredItemId } = results?.[at] ?? {};
      if (statusCode?.isGood() && monitoredItemId !== undefined)
        return { handle: handles[at]!, monitoredItem: monitoredItemId };
      return { why: statusCode?.name ?? 'no answer', isFilter: withFilter && isOfFilter(statusCode) };
    });
  }
}

type Monitored = { handle: number; monitoredItem: number } | { why: string; isFilter: boolean };

function isOfFilter(code: StatusCode | undefined): boolean {
  return [
    StatusCodes.BadMonitoredItemFilterUnsupported,
    StatusCodes.BadMonitoredItemFilterInvalid,
    StatusCodes.BadFilterNotAllowed,
    StatusCodes.BadDeadbandFilterInvalid,
  ].some((one) => one === code);
}

const TRIGGERS = {
  status: DataChangeTrigger.Status,
  value: DataChangeTrigger.StatusValue,
  timestamp: DataChangeTrigger.StatusValueTimestamp,
};

/** None where it would say what servers do without. */
function filterOf({ trigger, deadband }: Item): DataChangeFilter | null {
  if (trigger === 'value' && deadband === undefined) return null;
  return new DataChangeFilter({
    trigger: TRIGGERS[trigger],
    deadbandType: deadband === undefined ? DeadbandType.None : DeadbandType.Absolute,
    deadbandValue: deadband ?? 0,
  });
}

/** How long an answer to one of several requests may take. */
function patienceOf(publishingMs: number, keepAlives: number): number {
  return Math.ceil(publishingMs * keepAlives * (REQUESTS_UNDER_WAY + 1) + 15_000);
}

/** Numbers of messages go round in 32 bits, without 0. */
function nextOf(sequence: number): number {
  return sequence >= 0xffff_ffff ? 1 : sequence + 1;
}

function isBefore(one: number, other: number): boolean {
  const distance = (other - one) >>> 0;
  return distance !== 0 && distance < 0x8000_0000;
}
