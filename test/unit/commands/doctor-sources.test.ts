import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { DoctorContext } from '../../../src/commands/doctor/context.ts';
import { checkDevices } from '../../../src/commands/doctor/devices.ts';
import { SourceStatus } from '../../../src/sources/status.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

describe('doctor line of a source', () => {
  it('contains received values only if there are any', async () => {
    const clock = new ManualClock();
    const options = { name: 'drop', kind: 'csv', points: [], isPolled: true, clock, log: silentLogger() };
    const status = new SourceStatus(options);
    const lines = () => checkDevices({ agent: { sources: [status.report(0)] } } as unknown as DoctorContext);
    expect(await lines()).toMatchObject([{ message: 'drop: 0 configured values, none received yet' }]);
    status.lastStoredMs = clock.monotonicMs();
    await clock.advance(5_000);
    expect(await lines()).toMatchObject([{ message: expect.stringMatching(/^drop: .*, latest received 5 s ago$/) }]);
  });
});
