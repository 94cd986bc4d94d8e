/**
 * OPC UA server with node-opcua: `server-process.ts FOLDER PORT [URI…]`. Its certificate is in the folder. Each URI is a
 * namespace, indexed from 3 in this order, with the node `s=Flow` that commands call `URI Flow`. Each line of standard input
 * is a JSON command:
 *
 *   {"set": {"Flow": 1.5}, "status": "Uncertain", "time": 0}   sets values
 *   {"holdHistory": true}     does not respond to requests for history until the next such command
 *   {"count": 20}             increments Count 20 times; 0 stops counting
 *   {"flood": 50000}          sends 50,000 values of one node in the next message
 *   {"maxOperations": 2}      rejects larger requests
 *   {"trust": FILE}           trusts the user certificate in this file
 *   {"expire": true}          ends all sessions as if they had timed out
 *
 * Values of Count are written to `FOLDER/ledger` before they are readable, and to `FOLDER/acknowledged` when their message
 * is acknowledged. Requests that exceed the operation limits are written to `FOLDER/excess`. The node Slow is sampled every
 * 500 ms at most.
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
  makeAccessLevelFlag,
  type NotificationMessage,
  ServiceFault,
  StatusCodes,
  VariantArrayType,
} from 'node-opcua-client';
import { MessageChunker } from 'node-opcua-secure-channel';
import { OPCUAServer, Subscription } from 'node-opcua-server';

const [folder, port, ...uris] = process.argv.slice(2) as [string, string, ...string[]];
const STANDARD_TYPES = join(
  import.meta.dirname,
  '../../../node_modules/node-opcua-nodesets/nodesets/Opc.Ua.NodeSet2.ndjson.gz',
);
/** The server announces a host name that cannot be resolved, and its certificate has expired. */
const UNKNOWN_HOST = 'opcua-server.invalid';
const EXPIRED_CERTIFICATE = { from: new Date('2020-01-01'), days: 365 };
const OPERATION_LIMITS = { maxNodesPerRead: 10, maxMonitoredItemsPerCall: 8 };
/** Sampling interval of the node Slow. */
const SLOW_MS = 500;
/** Waits several event loop turns between two values, so that each one is sampled (every 20 ms). */
const TURNS = 4;
const TURN_MS = 25;

const manager = new OPCUACertificateManager({
  rootFolder: join(folder, 'pki'),
  automaticallyAcceptUnknownCertificate: true,
  disableFileWatchers: true,
});
const createCertificate = manager.createSelfSignedCertificate.bind(manager);
manager.createSelfSignedCertificate = (parameters) =>
  createCertificate({ ...parameters, startDate: EXPIRED_CERTIFICATE.from, validity: EXPIRED_CERTIFICATE.days });
/** Trusts user certificates one by one. */
const users = new OPCUACertificateManager({ rootFolder: join(folder, 'users'), disableFileWatchers: true });
const server = new OPCUAServer({
  port: Number(port),
  hostname: UNKNOWN_HOST,
  serverCapabilities: { operationLimits: OPERATION_LIMITS },
  serverCertificateManager: manager,
  userCertificateManager: users,
  userManager: { isValidUser: (name: string, password: string) => name === 'reader' && password === 'swordfish' },
  maxConnectionsPerEndpoint: 50,
  nodesets: [STANDARD_TYPES, join(import.meta.dirname, 'motor.xml')],
});
await users.initialize();
await server.initialize();
const space = server.engine.addressSpace!;
const own = space.getOwnNamespace();
type Variable = ReturnType<typeof own.addVariable>;
const line = own.addFolder(space.rootFolder.objects, { browseName: 'Line1' });
const pump = own.addObject({ browseName: 'Pump', componentOf: line });
const add = (
  name: string,
  dataType: string,
  value: unknown,
  parent = line as typeof line | typeof pump,
  ms = 10,
): Variable =>
  own.addVariable({
    browseName: name,
    nodeId: `s=Line1.${name}`,
    dataType,
    componentOf: parent,
    minimumSamplingInterval: ms,
    value: { dataType: DataType[dataType as keyof typeof DataType], arrayType: VariantArrayType.Scalar, value },
  } as never);
const variables = new Map<string, Variable>([
  ['Flow', add('Flow', 'Double', 12.5)],
  ['Level', add('Level', 'Double', 3)],
  ['Running', add('Running', 'Boolean', true, pump)],
  ['Total', add('Total', 'UInt64', [1, 5], pump)],
  ['Name', add('Name', 'String', 'P-1', pump)],
  ['Count', add('Count', 'Int32', 0)],
  ['Slow', add('Slow', 'Double', 1, line, SLOW_MS)],
]);
own.addVariable({
  browseName: 'Zones',
  nodeId: 's=Line1.Zones',
  dataType: 'Double',
  valueRank: 1,
  arrayDimensions: [3],
  componentOf: line,
  minimumSamplingInterval: 10,
  value: { dataType: DataType.Double, arrayType: VariantArrayType.Array, value: new Float64Array([1.5, 2.5, 3.5]) },
} as never);

const types = space.getNamespaceIndex('urn:test:motor');
own.addVariable({
  browseName: 'State',
  nodeId: 's=Line1.State',
  dataType: `ns=${types};i=1`,
  componentOf: pump,
  value: { dataType: DataType.Int32, value: 2 },
} as never);
const motorType = space.findDataType('MotorType', types)!;
const motorOf = (speed: number) =>
  space.constructExtensionObject(motorType, {
    name: 'M-1',
    speed,
    on: true,
    state: 1,
    axes: [
      { position: 0.5, steps: [0, 7] },
      { position: 1.5, steps: [1, 8] },
    ],
  });
own.addVariable({
  browseName: 'Motor',
  nodeId: 's=Line1.Motor',
  dataType: motorType,
  componentOf: line,
  minimumSamplingInterval: 10,
  value: { dataType: DataType.ExtensionObject, value: motorOf(10) },
} as never);

for (const uri of uris) {
  const variable = space.registerNamespace(uri).addVariable({
    browseName: 'Flow',
    nodeId: 's=Flow',
    dataType: 'Double',
    componentOf: line,
    minimumSamplingInterval: 10,
    value: { dataType: DataType.Double, value: 0 },
  } as never);
  variables.set(`${uri} Flow`, variable);
}

/** Ends sessions as the watchdog does after a timeout. */
function expireSessions(): void {
  const { _sessions } = server.engine as unknown as { _sessions: Record<string, { watchdogReset(): void }> };
  for (const session of Object.values(_sessions)) session.watchdogReset();
}

interface Channel {
  send_response(...parameters: unknown[]): void;
}

interface MessageSource {
  _popNotificationToSend(): NotificationMessage;
}

/**
 * Number of values in the next message, with times one millisecond apart. Ignores MaxNotificationsPerPublish and the
 * message size limit of the client.
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
MessageChunker.prototype.chunkSecureMessage = function (...parameters) {
  this.maxMessageSize = 0;
  this.maxChunkCount = 0;
  return chunkSecureMessage.apply(this, parameters);
};

/** Rejects requests with more operations, like small controllers that do not report their limits. */
let maxOperations = Number.POSITIVE_INFINITY;
const dispatch = server as unknown as Record<string, (message: { request: object }, channel: Channel) => void>;
for (const [service, member, limitName] of [
  ['Read', 'nodesToRead', 'maxNodesPerRead'],
  ['CreateMonitoredItems', 'itemsToCreate', 'maxMonitoredItemsPerCall'],
] as const) {
  const name = `_on_${service}Request`;
  const handle = dispatch[name]!;
  dispatch[name] = function (message, channel) {
    const operations = (message.request as Record<string, unknown[] | null>)[member] ?? [];
    const limit = OPERATION_LIMITS[limitName];
    if (operations.length > limit) appendFileSync(join(folder, 'excess'), `${operations.length} for ${limitName}\n`);
    if (operations.length <= maxOperations) return handle.call(this, message, channel);
    const responseHeader = { serviceResult: StatusCodes.BadTooManyOperations };
    channel.send_response('MSG', new ServiceFault({ responseHeader } as never), message);
  };
}

interface Command {
  maxOperations?: number;
  flood?: number;
  set?: Record<string, number>;
  status?: string;
  time?: number;
  count?: number;
  holdHistory?: boolean;
  trust?: string;
  expire?: true;
}

/** Returns values of Count, which is the only integer. */
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

/** History of Count, which a restart of the server does not end. */
const past: DataValue[] = [];
function remember(value: number, timeMs: number): void {
  const sourceTimestamp = new Date(timeMs);
  past.push(
    new DataValue({ value: { dataType: DataType.Int32, value }, sourceTimestamp, statusCode: StatusCodes.Good }),
  );
}
for (const line of existsSync(ledger) ? readFileSync(ledger, 'utf8').split('\n') : []) {
  const [value, timeMs] = line.split(' ').map(Number);
  if (timeMs) remember(value!, timeMs);
}
const counter = variables.get('Count')!;
/** Responses with history that are held back. */
let held: (() => void)[] | undefined;
space.installHistoricalDataNode(counter, {
  historian: {
    push: async () => {},
    extractDataValues({ startTime, endTime }, max, _isReversed, _reverses, callback) {
      const isWithin = ({ sourceTimestamp: time }: DataValue) => time! >= startTime! && time! <= endTime!;
      const respond = () => callback(null, past.filter(isWithin).slice(0, max || undefined));
      if (held) held.push(respond);
      else respond();
    },
  },
});
counter.userAccessLevel = makeAccessLevelFlag('CurrentRead | HistoryRead');
counter.accessLevel = counter.userAccessLevel;

/** Waits several turns between two numbers, so that each one is sampled even on a slow machine. */
async function keepCounting(): Promise<never> {
  for (;;) {
    for (let turn = 0; turn < TURNS; turn++) await sleep(TURN_MS);
    if (left === 0) continue;
    left--;
    const now = new Date();
    appendFileSync(ledger, `${++count} ${now.getTime()}\n`);
    remember(count, now.getTime());
    counter.setValueFromSource({ dataType: DataType.Int32, value: count }, StatusCodes.Good, now);
  }
}
void keepCounting();

createInterface({ input: process.stdin })
  .on('line', (text) => {
    const command = JSON.parse(text) as Command;
    if (command.trust !== undefined)
      void users.trustCertificate(crypto_utils.convertPEMtoDER(readFileSync(command.trust, 'latin1')));
    if (command.expire) expireSessions();
    if (command.maxOperations !== undefined) maxOperations = command.maxOperations;
    if (command.flood !== undefined) flood = command.flood;
    if (command.holdHistory !== undefined) {
      for (const respond of held ?? []) respond();
      held = command.holdHistory ? [] : undefined;
    }
    if (command.count !== undefined) left = command.count;
    const status = StatusCodes[(command.status ?? 'Good') as keyof typeof StatusCodes];
    for (const [name, value] of Object.entries(command.set ?? {})) {
      variables
        .get(name)!
        .setValueFromSource(
          { dataType: DataType.Double, value },
          status as never,
          new Date(command.time ?? Date.now()),
        );
    }
  })
  .on('close', () => process.exit(0));
process.on('SIGTERM', () => void server.shutdown(0).then(() => process.exit(0)));

await server.start();
process.stdout.write('READY\n');
