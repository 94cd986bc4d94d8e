/**
 * Subscription to server values. A notification is acknowledged when its values are on disk; until then the server
 * stores it. After a lost connection or a crash, the next session transfers the subscription, requests unacknowledged
 * notifications again, and receives the values queued in the meantime. A server that rejects the transfer gets a new
 * subscription, which begins with the current values.
 */
import {
  AttributeIds,
  DataChangeFilter,
  DataChangeNotification,
  DataChangeTrigger,
  DataType,
  DeadbandType,
  MonitoringMode,
  type NodeId,
  type NotificationMessage,
  StatusChangeNotification,
  type StatusCode,
  StatusCodes,
  TimestampsToReturn,
  Variant,
} from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import { missingNamespace } from './namespaces.ts';
import {
  type Item,
  type KeptSubscription,
  MAX_VALUES_PER_LINE,
  type MessageId,
  type ReaderLine,
  type ReaderTask,
  type ReadValue,
} from './protocol.ts';
import { OversizedMessage, type Session } from './session.ts';
import { isGood, readingOf, statusText, valueIdOf } from './values.ts';

const MIN_PUBLISHING_MS = 100;
const MAX_PUBLISHING_MS = 1_000;
/** Interval between keep-alive messages. */
const KEEP_ALIVE_MS = 5_000;
/** Requested subscription lifetime without a client, long enough for a gateway outage. */
const LIFETIME_MS = 3_600_000;
/** Requested lifetime if the subscription cannot be transferred. */
const SHORT_LIFETIME_MS = 60_000;
const MAX_VALUES_OF_MESSAGE = 1_000;
/** Maximum number of values that are not on disk yet. */
const MAX_UNSTORED = 10_000;
/** Minimum number of messages that a server retains (OPC 10000-4, 5.14.1.1: two per Publish request). */
const MIN_RETAINED = 2;
const RETRY_REJECTED_MS = 60_000;
const RESPONSE_MS = 15_000;
const SERVER = 'i=2253';
const SERVER_START = 'i=2257';
const RESEND_DATA = 'i=12873';
const MAX_SEQUENCE = 0xffff_ffff;

/** The subscription and its messages up to now, which outlive a connection. */
export class Progress {
  kept: KeptSubscription | undefined;
  /** Servers transfer a subscription only to the same user, or to an application with a certificate. */
  canTransfer: boolean;
  #subscription: number | undefined;
  #stored: MessageId | undefined;
  #received: MessageId | undefined;
  readonly #unstored: { id: MessageId; values: number }[] = [];
  #unstoredValues = 0;
  /** Sequence numbers of messages that are on disk and not acknowledged yet. */
  #acknowledgements: number[] = [];
  #wake = Promise.withResolvers<void>();

  constructor({ endpoint, kept, stored, received = stored }: ReaderTask) {
    this.kept = kept;
    this.#stored = stored;
    this.#received = received;
    this.canTransfer = endpoint.policy !== 'None' || endpoint.user !== undefined;
  }

  /** Sequence number of the latest message of a subscription that is on disk. */
  storedIn(subscription: number): number | undefined {
    return this.#stored?.[0] === subscription ? this.#stored[1] : undefined;
  }

  /** The same for messages that the agent has received. */
  receivedIn(subscription: number): number | undefined {
    return this.#received?.[0] === subscription ? this.#received[1] : undefined;
  }

  /** Continues with a subscription, whose stored messages are acknowledged again. */
  use(subscription: number, acknowledgements: number[]): void {
    this.#subscription = subscription;
    this.#acknowledgements = acknowledgements;
  }

  received(id: MessageId, values: number): void {
    this.#unstored.push({ id, values });
    this.#unstoredValues += values;
    this.#received = id;
  }

  /** Everything up to this message is on disk. */
  stored([subscription, sequence]: MessageId): void {
    const at = this.#unstored.findIndex(({ id }) => id[0] === subscription && id[1] === sequence);
    for (const { id, values } of this.#unstored.splice(0, at + 1)) {
      this.#unstoredValues -= values;
      this.#stored = id;
      if (id[0] === this.#subscription) this.#acknowledgements.push(id[1]);
    }
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  takeAcknowledgements(): number[] {
    return this.#acknowledgements.splice(0);
  }

  /** Resolves when more values may be requested. */
  async untilRoom(): Promise<void> {
    while (this.#unstoredValues >= MAX_UNSTORED) await this.#wake.promise;
  }
}

/** Item on this server, and the indices of equal items in the task. */
interface ResolvedItem {
  item: Item;
  nodeId: NodeId;
  places: number[];
}

type Monitored = { handle: number; monitoredItem: number } | { why: string; isFilterProblem: boolean };

interface SubscriptionOptions {
  session: Session;
  items: readonly Item[];
  progress: Progress;
  send(line: ReaderLine): void;
  clock: Clock;
  /** Aborted when the session ends. */
  signal: AbortSignal;
}

/** Use of a subscription by one session. */
export class Subscription {
  readonly #options: SubscriptionOptions;
  readonly #session: Session;
  /** Items by the settings with which the server monitors them. */
  #wanted = new Map<string, ResolvedItem>();
  readonly #handles = new Map<number, { key: string; monitoredItem: number }>();
  #hasRejected = false;
  #id = 0;
  #serverStartMs = 0;
  #nextHandle = 1;
  #publishTimeoutMs = 0;
  /** Sequence number of the next message. */
  #next: number | undefined;

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    this.#session = options.session;
  }

  /** Transfers the subscription of the previous session, or creates one. */
  async open(): Promise<void> {
    const { progress } = this.#options;
    const { value } = await this.#session.raw.read({ nodeId: SERVER_START, attributeId: AttributeIds.Value });
    this.#serverStartMs = value.value instanceof Date ? value.value.getTime() : 0;
    const unknown = this.#resolveItems();
    const { kept } = progress;
    const isTried = progress.canTransfer && kept?.serverStartMs === this.#serverStartMs;
    const result = isTried ? await this.#transfer(kept) : 'expired';
    if (result !== 'transferred') await this.#create();
    if (result === 'rejected') progress.canTransfer = false;
    await this.#updateItems(unknown, result !== 'transferred');
  }

  /** Receives notifications until the session ends, then rejects. */
  async run(): Promise<never> {
    return await Promise.race([this.#receive(), this.#retryRejected()]);
  }

  async #receive(): Promise<never> {
    const { progress } = this.#options;
    for (;;) {
      await progress.untilRoom();
      const acknowledged = progress.takeAcknowledgements();
      const response = await this.#session.publish(this.#id, acknowledged, this.#publishTimeoutMs);
      const { subscriptionId, notificationMessage } = response;
      const { sequenceNumber, notificationData } = notificationMessage;
      // A keep-alive contains the number of the next message.
      if (subscriptionId !== this.#id || !notificationData?.length) continue;
      if (this.#next !== undefined) await this.#reportLost(distance(this.#next, sequenceNumber));
      await this.#report(notificationMessage);
    }
  }

  /** Retries rejected nodes, because servers may load their models after startup. */
  async #retryRejected(): Promise<never> {
    const { clock, signal } = this.#options;
    for (;;) {
      await clock.sleep(RETRY_REJECTED_MS, signal);
      if (!this.#hasRejected) continue;
      await this.#session.readNamespaces();
      await this.#updateItems(this.#resolveItems(), false);
    }
  }

  async #report({ sequenceNumber, notificationData }: NotificationMessage): Promise<void> {
    const { items, progress, send } = this.#options;
    this.#next = sequenceNumber >= MAX_SEQUENCE ? 1 : sequenceNumber + 1;
    const status = notificationData?.find((data) => data instanceof StatusChangeNotification)?.status;
    if (status && !isGood(status)) throw new Error(`the subscription was closed (${status.name})`);
    const changes = (notificationData ?? []).flatMap((data) =>
      data instanceof DataChangeNotification ? (data.monitoredItems ?? []) : [],
    );
    await this.#session.decodeStructures(changes.map(({ value }) => value));
    const values: ReadValue[] = [];
    for (const { clientHandle, value } of changes) {
      const places = this.#wanted.get(this.#handles.get(clientHandle)?.key ?? '')?.places ?? [];
      for (const place of places) values.push([place, ...readingOf(value, items[place]!)]);
    }
    const message: MessageId = [this.#id, sequenceNumber];
    progress.received(message, values.length);
    while (values.length > MAX_VALUES_PER_LINE) send({ values: values.splice(0, MAX_VALUES_PER_LINE) });
    send({ values, message });
  }

  /** Requests the current value of each item after a loss. Some servers do not support this. */
  async #reportLost(messages: number): Promise<void> {
    if (messages <= 0) return;
    this.#options.send({ lost: messages });
    const value = new Variant({ dataType: DataType.UInt32, value: this.#id });
    const call = { objectId: SERVER, methodId: RESEND_DATA, inputArguments: [value] };
    await this.#session.raw.call(call).catch(() => {});
  }

  async #transfer({ id, items }: KeptSubscription): Promise<'transferred' | 'rejected' | 'expired'> {
    const { progress } = this.#options;
    const { results } = await this.#session.transfer(id).catch(() => ({ results: null }));
    const [result] = results ?? [];
    if (result?.statusCode === StatusCodes.BadSubscriptionIdInvalid) return 'expired';
    if (!result || !isGood(result.statusCode)) return 'rejected';
    this.#id = id;
    this.#publishTimeoutMs = publishTimeoutMs(MAX_PUBLISHING_MS, KEEP_ALIVE_MS / MIN_PUBLISHING_MS);
    for (const [key, handle, monitoredItem] of items) {
      this.#handles.set(handle, { key, monitoredItem });
      this.#nextHandle = Math.max(this.#nextHandle, handle + 1);
    }
    const [stored, received] = [progress.storedIn(id), progress.receivedIn(id)];
    const available = [...(result.availableSequenceNumbers ?? [])].sort((one, other) => distance(other, one));
    const unread = available.filter((sequence) => received === undefined || distance(received, sequence) > 0);
    progress.use(
      id,
      available.filter((sequence) => stored !== undefined && distance(stored, sequence) <= 0),
    );
    // A server with a full queue discards the oldest messages. Otherwise, missing numbers belong to messages about
    // transfers.
    if (received !== undefined && available.length >= MIN_RETAINED)
      await this.#reportLost(distance(received, available[0]!) - 1);
    for (const sequence of unread) if (!(await this.#republish(sequence))) await this.#reportLost(1);
    this.#next = undefined;
    return 'transferred';
  }

  async #republish(sequence: number): Promise<boolean> {
    const response = await this.#session.republish(this.#id, sequence).catch((error: unknown) => {
      if (error instanceof OversizedMessage) throw error;
    });
    if (response) await this.#report(response.notificationMessage);
    return response !== undefined;
  }

  async #create(): Promise<void> {
    const { items, progress } = this.#options;
    const fastest = Math.min(...items.map(({ samplingMs }) => samplingMs));
    const publishingMs = Math.min(Math.max(fastest, MIN_PUBLISHING_MS), MAX_PUBLISHING_MS);
    const created = await this.#session.raw.createSubscription({
      requestedPublishingInterval: publishingMs,
      requestedMaxKeepAliveCount: Math.ceil(KEEP_ALIVE_MS / publishingMs),
      requestedLifetimeCount: Math.ceil((progress.canTransfer ? LIFETIME_MS : SHORT_LIFETIME_MS) / publishingMs),
      maxNotificationsPerPublish: MAX_VALUES_OF_MESSAGE,
      publishingEnabled: true,
      priority: 0,
    });
    this.#id = created.subscriptionId;
    this.#publishTimeoutMs = publishTimeoutMs(created.revisedPublishingInterval, created.revisedMaxKeepAliveCount);
    progress.use(this.#id, []);
  }

  /** Finds the node IDs of the items. Returns the items whose namespace the server does not have. */
  #resolveItems(): [item: number, why: string][] {
    const { items } = this.#options;
    const { namespaces } = this.#session;
    const rejected: [item: number, why: string][] = [];
    this.#wanted = new Map();
    for (const [place, item] of items.entries()) {
      const nodeId = namespaces.nodeIdOf(item.node);
      if (nodeId === undefined) {
        rejected.push([place, missingNamespace(item.node)]);
        continue;
      }
      const key = keyOf(item, nodeId);
      const known = this.#wanted.get(key);
      if (known) known.places.push(place);
      else this.#wanted.set(key, { item, nodeId, places: [place] });
    }
    return rejected;
  }

  /** Deletes unused items, adds new ones and reports the result. Other items keep their queues. */
  async #updateItems(rejected: [item: number, why: string][], isNew: boolean): Promise<void> {
    const { progress, send } = this.#options;
    const unused = [...this.#handles].filter(([, { key }]) => !this.#wanted.has(key));
    await this.#session.inBatches(unused, async (some) => {
      const monitoredItemIds = some.map(([, { monitoredItem }]) => monitoredItem);
      await this.#session.raw.deleteMonitoredItems({ subscriptionId: this.#id, monitoredItemIds });
      for (const [handle] of some) this.#handles.delete(handle);
    });
    const existing = new Set([...this.#handles.values()].map(({ key }) => key));
    const added = [...this.#wanted].filter(([key]) => !existing.has(key));
    await this.#session.inBatches(added, async (some) => {
      const results = await this.#monitor(some.map(([, item]) => item));
      for (const [at, [key, { places }]] of some.entries()) {
        const result = results[at]!;
        if ('why' in result) rejected.push(...places.map((place): [number, string] => [place, result.why]));
        else this.#handles.set(result.handle, { key, monitoredItem: result.monitoredItem });
      }
    });
    this.#hasRejected = rejected.length > 0;
    send({ rejected });
    const kept = [...this.#handles].map(([handle, { key, monitoredItem }]) => [key, handle, monitoredItem] as const);
    progress.kept = { id: this.#id, serverStartMs: this.#serverStartMs, items: kept };
    send({ subscription: progress.kept, namespaces: this.#session.namespaces.uris, isNew });
  }

  /** Omits a filter that the server does not support for a value; the agent applies the dead band itself. */
  async #monitor(items: readonly ResolvedItem[]): Promise<Monitored[]> {
    const first = await this.#createItems(items, true);
    const isUnfiltered = (_: unknown, at: number) => 'why' in first[at]! && first[at].isFilterProblem;
    const unfiltered = items.filter(isUnfiltered);
    if (unfiltered.length === 0) return first;
    const second = await this.#createItems(unfiltered, false);
    return first.map((one, at) => (isUnfiltered(one, at) ? second.shift()! : one));
  }

  async #createItems(items: readonly ResolvedItem[], withFilter: boolean): Promise<Monitored[]> {
    const handles = items.map(() => this.#nextHandle++);
    const itemsToCreate = items.map(({ item, nodeId }, at) => ({
      itemToMonitor: valueIdOf(nodeId, item),
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
    return handles.map((handle, at) => {
      const { statusCode, monitoredItemId } = results?.[at] ?? {};
      if (statusCode && isGood(statusCode) && monitoredItemId !== undefined)
        return { handle, monitoredItem: monitoredItemId };
      const why = statusCode ? statusText(statusCode) : 'no response';
      return { why, isFilterProblem: withFilter && isFilterError(statusCode) };
    });
  }
}

/** Returns how far `to` is after `from`. Numbers wrap around at 32 bits. */
function distance(from: number, to: number): number {
  return (to - from) | 0;
}

/** Returns the key of the settings with which the server monitors an item. */
function keyOf({ index, samplingMs, queueSize, trigger, deadband }: Item, nodeId: NodeId): string {
  return [nodeId.toString(), index ?? '', samplingMs, queueSize, trigger, deadband ?? ''].join(' ');
}

function isFilterError(code: StatusCode | undefined): boolean {
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

/** Returns null if the filter equals the server default. */
function filterOf({ trigger, deadband }: Item): DataChangeFilter | null {
  if (trigger === 'value' && deadband === undefined) return null;
  return new DataChangeFilter({
    trigger: TRIGGERS[trigger],
    deadbandType: deadband === undefined ? DeadbandType.None : DeadbandType.Absolute,
    deadbandValue: deadband ?? 0,
  });
}

/** Returns the response timeout for a Publish request. */
function publishTimeoutMs(publishingMs: number, keepAlives: number): number {
  return Math.ceil(publishingMs * keepAlives * 2 + RESPONSE_MS);
}
