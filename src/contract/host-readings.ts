/**
 * What a `host` source can read of the machine itself: the names behind `reading:` in tags.yaml. Stands here because
 * both config (which checks the names) and sources (which reads them) need the list.
 *
 * Some take an argument after a colon: `disk_free:/var`, `network_rx:eth0`, `temperature:0`.
 */
export interface HostReading {
  name: string;
  /** What may stand behind the colon; the reading works without it as `without` says. */
  argument?: { what: 'path' | 'interface' | 'zone'; without: string };
  /** Unit of the number, for people. */
  unit: string;
  description: string;
}

const DISK = { what: 'path', without: 'the root file system' } as const;
const NETWORK = { what: 'interface', without: 'all interfaces but loopback together' } as const;
const ZONE = { what: 'zone', without: 'the hottest zone' } as const;

const HOST_READINGS: readonly HostReading[] = [
  { name: 'load1', unit: 'processes', description: 'mean length of the run queue over 1 minute' },
  { name: 'load5', unit: 'processes', description: 'mean length of the run queue over 5 minutes' },
  { name: 'load15', unit: 'processes', description: 'mean length of the run queue over 15 minutes' },
  { name: 'cpu_share', unit: '0 to 1', description: 'busy time of all processors since the last reading' },
  { name: 'memory_total', unit: 'bytes', description: 'memory of the machine' },
  { name: 'memory_used', unit: 'bytes', description: 'memory that is not available to new programs' },
  { name: 'memory_available', unit: 'bytes', description: 'memory that new programs can have without swapping' },
  { name: 'memory_share', unit: '0 to 1', description: 'used share of the memory' },
  { name: 'disk_used', argument: DISK, unit: 'bytes', description: 'used bytes of the file system' },
  { name: 'disk_free', argument: DISK, unit: 'bytes', description: 'bytes that ordinary users can still write' },
  { name: 'disk_share', argument: DISK, unit: '0 to 1', description: 'used share of the file system' },
  { name: 'network_rx', argument: NETWORK, unit: 'bytes/s', description: 'received since the last reading' },
  { name: 'network_tx', argument: NETWORK, unit: 'bytes/s', description: 'sent since the last reading' },
  {
    name: 'temperature',
    argument: ZONE,
    unit: '°C',
    description: 'of a thermal zone of the kernel, by number or type',
  },
  { name: 'uptime', unit: 's', description: 'time since the machine started' },
  { name: 'agent_memory', unit: 'bytes', description: 'resident memory of this agent' },
];

/** The names alone, for checks and hints. */
export const HOST_READING_NAMES: readonly string[] = HOST_READINGS.map((reading) => reading.name);

/** Takes `reading:` apart; `undefined` where the name is not known or takes no argument. */
export function parseHostReading(text: string): { reading: HostReading; argument: string | undefined } | undefined {
  const colon = text.indexOf(':');
  const name = colon < 0 ? text : text.slice(0, colon);
  const argument = colon < 0 ? undefined : text.slice(colon + 1);
  const reading = HOST_READINGS.find((each) => each.name === name);
  if (!reading) return undefined;
  if (argument !== undefined && (!reading.argument || argument === '')) return undefined;
  return { reading, argument };
}
