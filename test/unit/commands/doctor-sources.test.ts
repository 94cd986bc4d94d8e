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

  it('is followed by the values that have not arrived yet, beside another problem', async () => {
    const options = { name: 'plc', kind: 'modbus', points: [], isPolled: true, clock: new ManualClock() };
    const status = new SourceStatus({ ...options, log: silentLogger() });
    status.connect();
    status.problem = 'exception 2';
    const missing = { values: 1, first: [{ name: 'T a', problem: null }], since_seconds: 30, overdue: false };
    const context = { agent: { sources: [{ ...status.report(0), missing }] } };
    expect(await checkDevices(context as unknown as DoctorContext)).toMatchObject([
      { message: 'plc: some values cannot be read: exception 2' },
      { message: expect.stringMatching(/^plc: no value yet for T a, for 30 s$/) },
    ]);
  });
});
