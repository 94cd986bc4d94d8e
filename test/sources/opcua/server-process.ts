/**
 * A server of OPC UA, by node-opcua: `server-process.ts FOLDER PORT`. Its certificate lies in the folder. On standard input a line of JSON
 * each: `{"set": {"Flow": 1.5}, "status": "Uncertain"}`, `{"zones": [1, 2]}`, `{"count": 20}` counts Count on so many times, `{"count": 0}`
 * stops; `{"flood": 50000}` sends so many values of one node in the next message;
 * `{"maxOperations": 2}` rejects larger requests; `{"trust": FILE}` lets in the user with this certificate, `{"expire": true}` ends every session as one that is not heard of any
 * more, `{"transfer": false}` has no TransferSubscriptions from then on.
 * Each number that Count had stands in `FOLDER/ledger` with its time before anybody can have read it, and in `FOLDER/acknowledged` once its
 * reader has acknowledged the message that brought it.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { OPCUACertificateManager } from 'node-opcua-certificate-manager';
import {
  crypto_utils,
  DataChangeNotification,
  DataType,
  DataValue,
  MonitoredItemNotification,
  type NotificationMessage,
  ServiceFault,
  StatusCodes,
  VariantArrayType,
} from 'node-opcua-client';
import { MessageChunker } from 'node-opcua-secure-channel';
import { OPCUAServer, Subscription } from 'node-opcua-server';

const [folder, port] = process.argv.slice(2) as [string, string];
/** Samples are taken every 20 ms. */
const TURNS = 4;
const TURN_MS = 25;

const manager = new OPCUACertificateManager({
  rootFolder: join(folder, 'pki'),
  automaticallyAcceptUnknownCertificate: true,
  disableFileWatchers: true,
});
/** Users by certificate are let in one by one. */
const users = new OPCUACertificateManager({ rootFolder: join(folder, 'users'), disableFileWatchers: true });
const server = new OPCUAServer({
  port: Number(port),
  hostname: '127.0.0.1',
  serverCertificateManager: manager,
  userCertificateManager: users,
  userManager: { isValidUser: (name: string, password: string) => name === 'reader' && password === 'swordfish' },
  maxConnectionsPerEndpoint: 50,
});
await users.initialize();
await server.initialize();
const space = server.engine.addressSpace!;
const own = space.getOwnNamespace();
type Variable = ReturnType<typeof own.addVariable>;
const line = own.addFolder(space.rootFolder.objects, { browseName: 'Line1' });
const pump = own.addObject({ browseName: 'Pump', componentOf: line });
const add = (name: string, dataType: string, value: unknown, parent: typeof line | typeof pump = line): Variable =>
  own.addVariable({
    browseName: name,
    nodeId: `s=Line1.${name}`,
    dataType,
    componentOf: parent,
    minimumSamplingInterval: 10,
    value: { dataType: DataType[dataType as keyof typeof DataType], arrayType: VariantArrayType.Scalar, value },
  } as never);
const variables = new Map<string, Variable>([
  ['Flow', add('Flow', 'Double', 12.5)],
  ['Level', add('Level', 'Double', 3)],
  ['Running', add('Running', 'Boolean', true, pump)],
  ['Total', add('Total', 'UInt64', [1, 5], pump)],
  ['Name', add('Name', 'String', 'P-1', pump)],
  ['Count', add('Count', 'Int32', 0)],
]);
const zones = own.addVariable({
  browseName: 'Zones',
  nodeId: 's=Line1.Zones',
  dataType: 'Double',
  valueRank: 1,
  arrayDimensions: [3],
  componentOf: line,
  minimumSamplingInterval: 10,
  value: { dataType: DataType.Double, arrayType: VariantArrayType.Array, value: new Float64Array([1.5, 2.5, 3.5]) },
} as never);

/** What its watchdog does with a session that was not heard of in its time. */
function expireSessions(): void {
  const { _sessions } = server.engine as unknown as { _sessions: Record<string, { watchdogReset(): void }> };
  for (const session of Object.values(_sessions)) session.watchdogReset();
}

interface Channel {
  send_response(...words: unknown[]): void;
}

interface Service {
  _on_TransferSubscriptionsRequest?(message: object, channel: Channel): void;
}

/** As servers answer what they do not have. */
function setTransfer(isThere: boolean): void {
  const service = server as unknown as Service;
  if (isThere) delete service._on_TransferSubscriptionsRequest;
  else {
    service._on_TransferSubscriptionsRequest = (message, channel) => {
      const responseHeader = { serviceResult: StatusCodes.BadServiceUnsupported };
      channel.send_response('MSG', new ServiceFault({ responseHeader } as never), message);
    };
  }
}

interface MessageSource {
  _popNotificationToSend(): NotificationMessage;
}

/**
 * The next message with values has so many of them, with times of one millisecond after the other, whatever its client asked for: neither
 * MaxNotificationsPerPublish nor the message size of its Hello is respected.
 */
let flood = 0;
const source = Subscription.prototype as unknown as MessageSource;
const popNotification = source._popNotificationToSend;
source._popNotificationToSend = function () {
  const message = popNotification.call(this);
  const [data] = message.notificationData ?? [];
  const first = data instanceof DataChangeNotification ? data.monitoredItems?.[0] : undefined;
  if (flood === 0 || first === undefined || !(data instanceof DataChangeNotification)) return message;
  const startMs = Date.now() - 3_600_000;
  data.monitoredItems = Array.from({ length: flood }, (_, i) => {
    const value = new DataValue({
      value: { dataType: DataType.Double, value: i },
      sourceTimestamp: new Date(startMs + i),
    });
    return new MonitoredItemNotification({ clientHandle: first.clientHandle, value });
  });
  flood = 0;
  return message;
};
const { chunkSecureMessage } = MessageChunker.prototype;
MessageChunker.prototype.chunkSecureMessage = function (...words) {
  this.maxMessageSize = 0;
  this.maxChunkCount = 0;
  return chunkSecureMessage.apply(this, words);
};

/** Rejects requests with more operations, as small controllers do. */
let maxOperations = Number.POSITIVE_INFINITY;
const dispatch = server as unknown as Record<string, (message: { request: object }, channel: Channel) => void>;
for (const [service, member] of [
  ['Read', 'nodesToRead'],
  ['CreateMonitoredItems', 'itemsToCreate'],
] as const) {
  const name = `_on_${service}Request`;
  const handle = dispatch[name]!;
  dispatch[name] = function (message, channel) {
    const operations = (message.request as Record<string, object[] | null>)[member] ?? [];
    if (operations.length <= maxOperations) return handle.call(this, message, channel);
    const responseHeader = { serviceResult: StatusCodes.BadTooManyOperations };
    channel.send_response('MSG', new ServiceFault({ responseHeader } as never), message);
  };
}

interface Told {
  maxOperations?: number;
  flood?: number;
  set?: Record<string, number>;
  status?: string;
  time?: number;
  count?: number;
  zones?: number[];
  trust?: string;
  expire?: true;
  transfer?: boolean;
}

/** Count is the one that is no broken number. */
function countsIn(message: NotificationMessage | null): number[] {
  return (message?.notificationData ?? [])
    .flatMap((data) => (data instanceof DataChangeNotification ? (data.monitoredItems ?? []) : []))
    .flatMap(({ value: { value } }) => (value.dataType === DataType.Int32 ? [value.value as number] : []));
}

const { acknowledgeNotification } = Subscription.prototype;
Subscription.prototype.acknowledgeNotification = function (sequence) {
  const lines = countsIn(this.getMessageForSequenceNumber(sequence)).map((one) => `${one}\n`);
  if (lines.length > 0) appendFileSync(join(folder, 'acknowledged'), lines.join(''));
  return acknowledgeNotification.call(this, sequence);
};

const ledger = join(folder, 'ledger');
let count = existsSync(ledger) ? readFileSync(ledger, 'utf8').split('\n').length - 1 : 0;
let left = 0;

/** One number after the other; between two of them whoever samples has had its turn, however slow the machine is. */
async function keepCounting(): Promise<never> {
  for (;;) {
    for (let turn = 0; turn < TURNS; turn++) await sleep(TURN_MS);
    if (left === 0) continue;
    left--;
    const now = new Date();
    appendFileSync(ledger, `${++count} ${now.getTime()}\n`);
    variables.get('Count')!.setValueFromSource({ dataType: DataType.Int32, value: count }, StatusCodes.Good, now);
  }
}
void keepCounting();

createInterface({ input: process.stdin })
  .on('line', (text) => {
    const told = JSON.parse(text) as Told;
    if (told.zones)
      zones.setValueFromSource({
        dataType: DataType.Double,
        arrayType: VariantArrayType.Array,
        value: new Float64Array(told.zones),
      });
    if (told.trust !== undefined)
      void users.trustCertificate(crypto_utils.convertPEMtoDER(readFileSync(told.trust, 'latin1')));
    if (told.expire) expireSessions();
    if (told.transfer !== undefined) setTransfer(told.transfer);
    if (told.maxOperations !== undefined) maxOperations = told.maxOperations;
    if (told.flood !== undefined) flood = told.flood;
    if (told.count !== undefined) left = told.count;
    const status = StatusCodes[(told.status ?? 'Good') as keyof typeof StatusCodes];
    for (const [name, value] of Object.entries(told.set ?? {})) {
      variables
        .get(name)!
        .setValueFromSource({ dataType: DataType.Double, value }, status as never, new Date(told.time ?? Date.now()));
    }
  })
  .on('close', () => process.exit(0));
process.on('SIGTERM', () => void server.shutdown(0).then(() => process.exit(0)));

await server.start();
process.stdout.write('READY\n');
