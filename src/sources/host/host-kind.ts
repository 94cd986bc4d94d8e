import { insteadOf } from '../../base/nearest.ts';
import { printable } from '../../config/problem.ts';
import type { Members } from '../../config/source-kinds.ts';
import { HOST_READING_NAMES, parseHostReading } from '../../contract/host-readings.ts';
import type { SourceKind } from '../source-kind.ts';
import type { HostSpec, HostValue } from './host-source.ts';

/** The gateway itself: `self: { host: true }`. */
export const HOST: SourceKind<HostSpec, HostValue> = {
  kind: 'host',
  example: 'host: true',
  sourceMembers: {
    host: { const: true, title: 'true', description: 'Readings of this machine.', examples: [true] },
  },
  valueMembers: {
    reading: {
      type: 'string',
      minLength: 1,
      maxLength: 128,
      title: 'the name of a reading',
      description: 'Host: reading to collect.',
      examples: ['load1'],
    },
  },
  needs: { member: 'reading', example: 'reading: load1' },
  // A long interval is sufficient because gateway readings change slowly, and each value is stored and posted.
  everyMs: 10_000,
  readSource: () => true,
  readValue(raw: Members, report) {
    const reading = String(raw.reading);
    if (parseHostReading(reading) !== undefined) return { reading };
    const [name = '', argument] = reading.split(':');
    const isKnown = HOST_READING_NAMES.includes(name);
    let reason = 'is not a known reading';
    if (isKnown) reason = argument === '' ? 'requires an argument after the colon' : 'does not accept an argument';
    const instead = isKnown ? `use ${name}` : insteadOf(name, HOST_READING_NAMES);
    return report.problem('reading', `reading "${printable(reading)}" ${reason}`, instead);
  },
  addressOf: (_, { reading }) => reading,
  async open(context) {
    const { HostSource } = await import('./host-source.ts');
    return new HostSource(context);
  },
};
