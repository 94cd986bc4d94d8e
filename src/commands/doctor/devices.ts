import { readBrokerAddress } from '../../broker/broker-address.ts';
import type { Source } from '../../config/tags.ts';
import { type CheckLine, type Consultation, failure, ok } from './finding.ts';
import { tcpTrouble } from './network.ts';

const PATIENCE_MS = 3_000;
/** Asked at once. */
const TOGETHER = 8;

/** MQTT brokers and Modbus slaves of tags.yaml: whether they take a connection from here. */
export async function checkDevices({ configuration }: Consultation): Promise<CheckLine[]> {
  const sources = [...(configuration?.tags.sources.values() ?? [])].filter(
    (source) => source.kind === 'mqtt' || source.kind === 'modbus',
  );
  const lines: CheckLine[] = [];
  for (let from = 0; from < sources.length; from += TOGETHER) {
    lines.push(...(await Promise.all(sources.slice(from, from + TOGETHER).map(checkOne))));
  }
  return lines;
}

async function checkOne(source: Extract<Source, { kind: 'mqtt' | 'modbus' }>): Promise<CheckLine> {
  const check = source.kind === 'mqtt' ? 'broker' : 'modbus';
  const { host, port } = placeOf(source);
  const trouble = await tcpTrouble(host, port, PATIENCE_MS);
  if (trouble === undefined) return ok(check, `${source.name} takes connections at ${host} port ${port}`);
  const next =
    source.kind === 'mqtt'
      ? 'Check address and firewall of the broker, and that it runs; values that it keeps for us are not lost.'
      : 'Check address, power and cable of the device; many take only a few connections at once.';
  return failure(check, `${source.name} takes no connection at ${host} port ${port} (${trouble})`, next);
}

function placeOf(source: Extract<Source, { kind: 'mqtt' | 'modbus' }>): { host: string; port: number } {
  if (source.kind === 'mqtt') return readBrokerAddress(source.name, source.url);
  const { hostname, port } = new URL(source.url);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || 502) };
}
