/**
 * Readings of a `host` source: the names for `reading:` in tags.yaml. The list is used by config, which checks the
 * names, and by sources, which reads the values.
 *
 * Some readings have an argument after a colon: `disk_free:/var`, `network_rx:eth0`, `temperature:0`.
 */
export interface HostReading {
  name: string;
  /** Argument after the colon. `without` describes the reading without the argument. */
  argument?: { what: 'path' | 'interface' | 'zone'; without: string };
  /** Unit, for display. */
  unit: string;
  description: string;
}

const DISK = { what: 'path', without: 'the root file system' } as const;
const NETWORK = { what: 'interface', without: 'all interfaces except loopback' } as const;
const ZONE = { what: 'zone', without: 'the hottest zone' } as const;

const HOST_READINGS: readonly HostReading[] = [
  { name: 'load1', unit: 'processes', description: 'average length of the run queue over 1 minute' },
  { name: 'load5', unit: 'processes', description: 'average length of the run queue over 5 minutes' },
  { name: 'load15', unit: 'processes', description: 'average length of the run queue over 15 minutes' },
  { name: 'cpu_share', unit: '0 to 1', description: 'busy time of all processors since the previous reading' },
  { name: 'memory_total', unit: 'bytes', description: 'total memory' },
  { name: 'memory_used', unit: 'bytes', description: 'memory that is not available to new programs' },
  { name: 'memory_available', unit: 'bytes', description: 'memory available to new programs without swapping' },
  { name: 'memory_share', unit: '0 to 1', description: 'share of memory in use' },
  { name: 'disk_used', argument: DISK, unit: 'bytes', description: 'bytes in use on the file system' },
  { name: 'disk_free', argument: DISK, unit: 'bytes', description: 'bytes that ordinary users can still write' },
  { name: 'disk_share', argument: DISK, unit: '0 to 1', description: 'share of the file system in use' },
  { name: 'network_rx', argument: NETWORK, unit: 'bytes/s', description: 'received since the previous reading' },
  { name: 'network_tx', argument: NETWORK, unit: 'bytes/s', description: 'sent since the previous reading' },
  {
    name: 'temperature',
    argument: ZONE,
    unit: '°C',
    description: 'temperature of a thermal zone, by number or type',
  },
  { name: 'uptime', unit: 's', description: 'time since boot' },
  { name: 'agent_memory', unit: 'bytes', description: 'resident memory of this agent' },
];

/** Names, for checks and hints. */
export const HOST_READING_NAMES: readonly string[] = HOST_READINGS.map((reading) => reading.name);

/** Parses `reading:`. Returns undefined for an unknown name or an argument that the reading does not have. */
export function parseHostReading(text: string): { reading: HostReading; argument: string | undefined } | undefined {
  const colon = text.indexOf(':');
  const name = colon < 0 ? text : text.slice(0, colon);
  const argument = colon < 0 ? undefined : text.slice(colon + 1);
  const reading = HOST_READINGS.find((each) => each.name === name);
  if (!reading) return undefined;
  if (argument !== undefined && (!reading.argument || argument === '')) return undefined;
  return { reading, argument };
}
