import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { UNSHAPED, type Writable } from '../../../src/config/tags.ts';
import type { ObservedReading } from '../../../src/sources/status.ts';
import { type WriteRequest, Writer } from '../../../src/sources/writes/writer.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

interface DeviceOptions {
  writable?: Partial<Writable>;
  scale?: number;
  notes?: Map<string, string>;
  /** The device cannot be queried and reports this value after a write. */
  reports?: number;
}

/** A device with one integer register. */
function makeDevice({ writable = {}, scale = 1, notes = new Map(), reports }: DeviceOptions = {}) {
  const clock = new ManualClock();
  const log = silentLogger();
  const events: string[] = [];
  log.warn = log.info = ((fields: { event: string }) => events.push(fields.event)) as typeof log.warn;
  const device = { register: 0, sent: [] as number[], isReachable: true, beforeSend: () => {}, afterSend: () => {} };
  /** Current configuration, which a reload changes. */
  const current = {
    isOn: true,
    writable: { min: 0, max: 100, verify: true, tolerance: 0, ...writable } as Writable,
    spec: 'register 1',
  };
  const listeners = new Set<(reading: ObservedReading) => void>();
  const readOne = {
    readOne: async () => {
      if (!device.isReachable) throw new Error('no response');
      return device.register;
    },
  };
  const source = {
    ...(reports === undefined ? readOne : {}),
    write: async (_: unknown, raw: number, guard: () => void) => {
      device.beforeSend();
      guard();
      device.register = Math.round(raw);
      device.sent.push(device.register);
      device.afterSend();
      if (reports !== undefined) for (const listener of listeners) listener({ point: point as never, value: reports });
    },
  };
  const point = { series: 1, shaping: { ...UNSHAPED, scale } };
  const outcomes: string[] = [];
  const writer = new Writer({
    isOn: () => current.isOn,
    find: ({ tag, key, group = 'default' }) =>
      ({
        name: 'VALVE-1 setpoint',
        value: { tag, group, key },
        writable: current.writable,
        rules: { storedFor: (_: unknown, raw: number) => Math.round(raw) },
        targets: [current.spec],
        point: { ...point, spec: current.spec },
        source,
        status: {
          latestOf: () => undefined,
          listen: (listener: (reading: ObservedReading) => void) => {
            listeners.add(listener);
            return () => listeners.delete(listener);
          },
        },
      }) as never,
    notes: { read: async (name) => notes.get(name), set: async (name, text) => void notes.set(name, text) },
    onOutcome: (outcome) => outcomes.push(outcome),
    clock,
    log,
  });
  const write = async (value: number, more: Partial<WriteRequest> = {}) =>
    await writer.write({
      tag: 'VALVE-1',
      key: 'setpoint',
      value,
      by: 'reaction r',
      order: [1, 0, 0],
      reasonAgainst: () => undefined,
      signal: new AbortController().signal,
      ...more,
    });
  return { device, write, clock, events, outcomes, notes, current };
}

describe('writer', () => {
  it('rejects a value that the device would round to a number outside the range', async () => {
    const { device, write } = makeDevice({ scale: 0.7 });
    expect(await write(100)).toMatchObject({ outcome: 'rejected', detail: expect.stringContaining('as 100.1') });
    expect(await write(99.4)).toMatchObject({ outcome: 'written' });
    expect(device.sent).toEqual([142]);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, -1, 100.5])('sends nothing for the value %d', async (value) => {
    const { device, write, outcomes } = makeDevice();
    expect(await write(value)).toMatchObject({ outcome: 'rejected' });
    expect([device.sent, outcomes]).toEqual([[], ['rejected']]);
  });

  it('limits the change within the period across a restart', async () => {
    const writable = { maxRate: { change: 10, perMs: 60_000 } };
    const before = makeDevice({ writable });
    expect((await before.write(10)).outcome).toBe('written');
    expect((await before.write(20)).outcome).toBe('rejected');
    expect((await before.write(4)).outcome).toBe('written');
    const after = makeDevice({ writable, notes: before.notes });
    after.device.register = 4;
    expect((await after.write(14)).outcome).toBe('rejected');
    await after.clock.advance(60_000);
    expect((await after.write(14)).outcome).toBe('written');
  });

  it('rejects a write that was caused by an earlier event, even after a restart', async () => {
    const before = makeDevice();
    expect((await before.write(5, { order: [10, 0, 0] })).outcome).toBe('written');
    const after = makeDevice({ notes: before.notes });
    expect(await after.write(6, { order: [9, 0, 0] })).toMatchObject({ outcome: 'rejected' });
    expect((await after.write(6, { order: [10, 0, 0] })).outcome).toBe('written');
    expect(after.device.sent).toEqual([6]);
  });

  it('rejects the retry of an action after a later action of the same event, even after a restart', async () => {
    const before = makeDevice();
    before.device.isReachable = false;
    expect((await before.write(1, { order: [7, 0, 0] })).outcome).toBe('failed');
    before.device.isReachable = true;
    expect((await before.write(0, { order: [7, 0, 1] })).outcome).toBe('written');
    expect((await before.write(1, { order: [7, 0, 0] })).outcome).toBe('rejected');
    const after = makeDevice({ notes: before.notes });
    expect((await after.write(1, { order: [7, 0, 0] })).outcome).toBe('rejected');
    expect((await after.write(2, { order: [7, 1, 0] })).outcome).toBe('written');
    expect([before.device.sent, after.device.sent]).toEqual([[0], [2]]);
  });

  it('does not supersede an earlier event if nothing was sent, even after a restart', async () => {
    const writable = { maxRate: { change: 10, perMs: 60_000 } };
    const before = makeDevice({ writable });
    expect((await before.write(1, { order: [1, 0, 0] })).outcome).toBe('written');
    const late = { order: [3, 0, 0] as const, reasonAgainst: () => 'the event is too old' };
    expect((await before.write(2, late)).outcome).toBe('rejected');
    const after = makeDevice({ writable, notes: before.notes });
    for (const { write } of [before, after]) {
      expect((await write(3, { order: [2, 0, 0] })).outcome).toBe('written');
    }
    expect((await after.write(1, { order: [1, 0, 0] })).outcome).toBe('rejected');
  });

  it('supersedes earlier events if the device did not respond to a request', async () => {
    const { device, write } = makeDevice();
    device.afterSend = () => {
      throw new Error('no response');
    };
    expect((await write(5, { order: [2, 0, 0] })).outcome).toBe('failed');
    device.afterSend = () => {};
    expect((await write(6, { order: [1, 0, 0] })).outcome).toBe('rejected');
    expect(device.sent).toEqual([5]);
  });

  it('limits and orders the writes of each group separately', async () => {
    const { write, notes } = makeDevice({ writable: { maxRate: { change: 10, perMs: 60_000 } } });
    expect((await write(5, { group: 'a', order: [2, 0, 0] })).outcome).toBe('written');
    expect((await write(15, { group: 'b', order: [1, 0, 0] })).outcome).toBe('written');
    expect((await write(4, { group: 'a', order: [1, 0, 0] })).outcome).toBe('rejected');
    expect(notes.size).toBe(2);
  });

  it('reports two rules that write one value within a second, and lets the later event take precedence', async () => {
    const { device, write, events } = makeDevice();
    const both = [
      write(5, { order: [2, 0, 0], by: 'reaction late' }),
      write(9, { order: [1, 0, 0], by: 'reaction early' }),
    ];
    expect((await Promise.all(both)).map(({ outcome }) => outcome)).toEqual(['written', 'rejected']);
    expect(device.register).toBe(5);
    expect(events).toContain('write.conflict');
  });

  it('checks the age immediately before it sends the request', async () => {
    const { device, write } = makeDevice();
    let isOld = false;
    device.beforeSend = () => {
      isOld = true;
    };
    const result = await write(5, { reasonAgainst: () => (isOld ? 'the event is too old' : undefined) });
    expect(result).toMatchObject({ outcome: 'rejected', detail: expect.stringContaining('too old') });
    expect(device.sent).toEqual([]);
  });

  it.each<[string, Partial<ReturnType<typeof makeDevice>['current']>, string]>([
    ['WRITES is turned off', { isOn: false }, 'rejected'],
    ['the range is narrowed', { writable: { min: 0, max: 4, verify: true, tolerance: 0 } }, 'rejected'],
    [
      'max_rate is added',
      { writable: { min: 0, max: 9, verify: true, tolerance: 0, maxRate: { change: 1, perMs: 1_000 } } },
      'rejected',
    ],
    ['the value is moved to another register', { spec: 'register 2' }, 'failed'],
  ])('sends nothing if %s by a reload while the write is in progress', async (_, reloaded, outcome) => {
    const { device, write, current } = makeDevice();
    device.beforeSend = () => void Object.assign(current, reloaded);
    expect(await write(5)).toMatchObject({ outcome });
    expect(device.sent).toEqual([]);
  });

  it.each([
    [20, 'written', 'read back 20'],
    [15, 'unverified', 'returns 15 instead of 20'],
  ])(
    'compares the value with the reported one if the device cannot be queried: %d',
    async (reports, outcome, detail) => {
      const { device, write, clock } = makeDevice({ scale: 0.5, reports });
      const written = write(20);
      await clock.advance(6_000);
      expect(await written).toMatchObject({ outcome, detail: expect.stringContaining(detail) });
      expect(device.sent).toEqual([40]);
    },
  );

  it('fails without sending if the device does not respond', async () => {
    const { device, write } = makeDevice();
    device.isReachable = false;
    expect(await write(5)).toMatchObject({ outcome: 'failed', detail: expect.stringContaining('no response') });
    expect(device.sent).toEqual([]);
  });
});
