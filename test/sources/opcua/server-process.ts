/**
 * A server of OPC UA, by node-opcua: `server-process.ts FOLDER PORT`. Its certificate lies in the folder. On standard input a line of JSON
 * each: `{"set": {"Flow": 1.5}, "status": "Uncertain"}`, `{"count": 20}` counts Count on so many times, `{"count": 0}` stops.
 * Each number that Count had stands in `FOLDER/ledger` with its time before anybody can have read it.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { OPCUACertificateManager } from 'node-opcua-certificate-manager';
import { DataType, StatusCodes, VariantArrayType } from 'node-opcua-client';
import { OPCUAServer } from 'node-opcua-server';

const [folder, port] = process.argv.slice(2) as [string, string];
/** Samples are taken every 20 ms. */
const TURNS = 4;
const TURN_MS = 25;

const manager = new OPCUACertificateManager({
  rootFolder: join(folder, 'pki'),
  automaticallyAcceptUnknownCertificate: true,
  disableFileWatchers: true,
});
const server = new OPCUAServer({
  port: Number(port),
  hostname: '127.0.0.1',
  serverCertificateManager: manager,
  userCertificateManager: manager,
  userManager: { isValidUser: (name: string, password: string) => name === 'reader' && password === 'swordfish' },
  maxConnectionsPerEndpoint: 50,
});
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
    const told = JSON.parse(text) as { set?: Record<string, number>; status?: string; time?: number; count?: number };
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
