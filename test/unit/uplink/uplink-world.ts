import type { OutgoingBuffer } from '../../../src/buffer/client/lanes.ts';
import type { AccessPort } from '../../../src/uplink/ports.ts';
import type { UplinkOptions } from '../../../src/uplink/uplink.ts';
import type { ManualClock } from '../doubles/manual-clock.ts';
import type { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { type Answering, DirectPlatform, Plant } from './plant.ts';

export interface Around {
  answering?: Answering;
  options?: Partial<UplinkOptions>;
  perMinute?: number;
  holds?: AccessPort;
}

/** Creates an uplink that is not started, and its platform. */
export function planted(clock: ManualClock, { answering, options, perMinute = 0, holds }: Around = {}) {
  const platform = new DirectPlatform(clock, answering);
  return { platform, plant: new Plant(clock, platform, options, perMinute, undefined, holds) };
}

/** Replaces a method of the buffer. `other` receives the original one. */
export function instead<Call extends keyof OutgoingBuffer>(
  buffer: MemoryBuffer,
  call: Call,
  other: (works: OutgoingBuffer[Call]) => OutgoingBuffer[Call],
): void {
  Object.assign(buffer, { [call]: other(buffer[call].bind(buffer) as OutgoingBuffer[Call]) });
}

/** Stops the uplink without waiting for posts in progress. */
export async function ended({ clock, uplink }: Plant): Promise<void> {
  const stopped = uplink.stop(0);
  await (clock as ManualClock).advance(1_000);
  await stopped;
}
