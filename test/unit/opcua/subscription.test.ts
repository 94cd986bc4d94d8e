import {
  DataChangeNotification,
  DataType,
  DataValue,
  MonitoredItemNotification,
  NotificationMessage,
  resolveNodeId,
  StatusCodes,
  type Variant,
} from 'node-opcua-client';
import { describe, expect, it } from 'vitest';
import { problemOf } from '../../../src/opcua/problems.ts';
import type { KeptSubscription, ReaderLine, ReaderTask } from '../../../src/opcua/protocol.ts';
import { writeItem } from '../../../src/opcua/requests.ts';
import type { Session } from '../../../src/opcua/session.ts';
import { Subscription } from '../../../src/opcua/subscription.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const ID = 5;
const HANDLE = 1;
const KEY = 'ns=1;s=A  20 100 value';
const MONITORED = { key: KEY, monitoredItem: 9, samplingMs: 20, queueSize: 100 };
const TASK: ReaderTask = {
  endpoint: { url: 'opc.tcp://h', policy: 'None', mode: 'None', identity: { folder: '' }, trustFolder: '' },
  items: [{ node: 'ns=1;s=A', samplingMs: 20, queueSize: 100, trigger: 'value' }],
  namespaces: [],
  kept: { id: ID, serverStartMs: 0, items: [[HANDLE, MONITORED]] },
  stored: [ID, 10],
  isTest: false,
};

type Callback = (error: Error | null, response?: unknown) => void;

/** A server that retains messages of a subscription. Each contains its sequence number as the value. */
class Server {
  readonly lines: ReaderLine[] = [];
  readonly subscription: Subscription;

  /** `retained`: sequence numbers; a negative one is listed, but not available any more. */
  constructor(
    retained: readonly number[],
    revised: { samplingMs?: number; queueSize?: number; publishingMs?: number } = {},
  ) {
    const { publishingMs = 100, ...others } = revised;
    const raw = {
      read: async () => ({ value: undefined }),
      transferSubscriptions: (_: unknown, callback: Callback) =>
        callback(null, {
          results: [{ statusCode: StatusCodes.Good, availableSequenceNumbers: retained.map((one) => Math.abs(one)) }],
        }),
      modifySubscription: async () => ({ revisedPublishingInterval: publishingMs, revisedMaxKeepAliveCount: 10 }),
      republish: ({ retransmitSequenceNumber: sequence }: { retransmitSequenceNumber: number }, callback: Callback) => {
        if (!retained.includes(sequence)) callback(new Error('BadMessageNotAvailable'));
        else callback(null, { notificationMessage: messageOf(sequence) });
      },
      call: async () => {},
    };
    const kept: KeptSubscription = { ...TASK.kept!, items: [[HANDLE, { ...MONITORED, ...others }]] };
    this.subscription = new Subscription(sessionOf(raw), { ...TASK, kept }, (line) => this.lines.push(line));
  }

  async open(): Promise<this> {
    await this.subscription.open(true);
    return this;
  }

  /** Values of the requested messages, and the reported losses. */
  get received() {
    return this.lines.flatMap((line) => {
      if ('values' in line) return line.values.map(([, raw]) => raw);
      return 'lost' in line ? [`${line.lost} lost`] : [];
    });
  }
}

/** `dataType`: type of the node's current value. */
function sessionOf(raw: object, dataType = DataType.Double): Session {
  return {
    raw,
    namespaces: ['', 'urn:a'],
    nodeIdOf: (node: string) => resolveNodeId(node),
    inBatches: async () => [],
    decodeStructures: async () => {},
    read: async () => [{ value: { dataType }, statusCode: StatusCodes.BadNodeIdUnknown }],
  } as unknown as Session;
}

/** Returns the values that are sent to the server, which responds with `status`. */
async function written(dataType: DataType, number: number, status = StatusCodes.Good): Promise<unknown[]> {
  const sent: unknown[] = [];
  const write = async ({ value }: { value: { value: Variant } }) => {
    sent.push(value.value.value);
    return status;
  };
  await writeItem(sessionOf({ write }, dataType), 'ns=1;s=A', number, new ManualClock());
  return sent;
}

function messageOf(sequenceNumber: number): NotificationMessage {
  const value = new DataValue({ value: { dataType: DataType.Double, value: sequenceNumber } });
  const monitoredItems = [new MonitoredItemNotification({ clientHandle: HANDLE, value })];
  return new NotificationMessage({
    sequenceNumber,
    notificationData: [new DataChangeNotification({ monitoredItems })],
  });
}

describe('transferred OPC UA subscription', () => {
  it.each([
    ['has discarded', [13, 14], ['2 lost', 13, 14]],
    ['lists and does not return', [11, -12, 13], [11, '1 lost', 13]],
  ])('reports messages that the server %s', async (_what, retained, expected) => {
    expect((await new Server(retained).open()).received).toEqual(expected);
  });

  it.each([
    [
      { samplingMs: 50, publishingMs: 6_000 },
      ['sampled every 50 ms instead of 20 ms, sent every 6000 ms instead of 100 ms'],
    ],
    // The queue contains all values of the longer interval.
    [{ publishingMs: 2_000 }, []],
    [{}, []],
  ])('reports revised intervals and queue sizes: %j', async (revised, expected) => {
    const { lines } = await new Server([12], revised).open();
    expect(lines.flatMap((line) => ('revised' in line ? line.revised : []))).toEqual(expected.map((what) => [0, what]));
  });

  it('reports no loss if the server only counted the transfer', async () => {
    expect((await new Server([12]).open()).received).toEqual([12]);
  });
});

describe('OPC UA subscription with a rejected node', () => {
  it('reports the node only when its state changes, not at each attempt', async () => {
    const lines: ReaderLine[] = [];
    const clock = new ManualClock();
    let isLoaded = false;
    const session = {
      ...sessionOf({
        read: async () => ({ value: undefined }),
        createSubscription: async () => ({ subscriptionId: ID }),
      }),
      nodeIdOf: (node: string) => {
        if (!isLoaded) throw new Error('the server does not have the namespace urn:a');
        return resolveNodeId(node);
      },
      readNamespaces: async () => {},
    };
    const task = { ...TASK, kept: undefined };
    const subscription = new Subscription(session as unknown as Session, task, (line) => lines.push(line));
    await subscription.open(false);
    const end = new AbortController();
    subscription.retryRejected(clock, end.signal).catch(() => {});
    const rejected = () => lines.flatMap((line) => ('rejected' in line ? [line.rejected.length] : []));
    for (let minute = 0; minute < 3; minute++) await clock.advance(60_000);
    expect(rejected()).toEqual([1]);
    isLoaded = true;
    await clock.advance(60_000);
    expect(rejected()).toEqual([1, 0]);
    end.abort();
  });
});

describe('OPC UA write', () => {
  it.each([
    [DataType.Boolean, 1, true],
    [DataType.Float, 1.5, 1.5],
    [DataType.Int16, -32_768, -32_768],
    [DataType.UInt32, 4_294_967_295, 4_294_967_295],
    [DataType.Int64, -2, [4_294_967_295, 4_294_967_294]],
    [DataType.UInt64, 2 ** 33 + 1, [2, 1]],
  ])('sends a number in the type of the node: %s %s', async (dataType, number, sent) => {
    expect(await written(dataType, number)).toEqual([sent]);
  });

  it.each([
    [DataType.Boolean, 2],
    [DataType.Float, 1e300],
    [DataType.Int16, 32_768],
    [DataType.Byte, 1.5],
    [DataType.UInt64, -1],
    [DataType.Int64, 2 ** 53],
    [DataType.String, 1],
    [DataType.DateTime, 1],
  ])('rejects a number that does not fit the type: %s %s', async (dataType, number) => {
    await expect(written(dataType, number)).rejects.toThrow('does not fit');
  });

  it.each([
    [StatusCodes.BadUserAccessDenied, 'the user has no access to the node (BadUserAccessDenied)'],
    [StatusCodes.BadNotWritable, 'the node is not writable (BadNotWritable)'],
    [StatusCodes.BadInternalError, 'status BadInternalError'],
  ])('explains why the server rejected it: %s', async (status, reason) => {
    const error = await written(DataType.Double, 1, status).catch((problem: unknown) => problem);
    expect(problemOf(error, {}).problem).toBe(`the server rejected the write: ${reason}`);
  });

  it('explains that the node is missing', async () => {
    const error = await written(DataType.Null, 1).catch((problem: unknown) => problem);
    expect(problemOf(error, {}).problem).toContain('the server does not have this node');
  });
});
