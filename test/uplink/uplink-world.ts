import type { OutgoingBuffer } from '../../src/buffer/client/lanes.ts';
import type { AccessPort } from '../../src/uplink/ports.ts';
import type { UplinkOptions } from '../../src/uplink/uplink.ts';
import type { ManualClock } from '../doubles/manual-clock.ts';
import type { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { type Answering, DirectPlatform, Plant } from './plant.ts';

export interface Around {
  answering?: Answering;
  options?: Partial<UplinkOptions>;
  perMinute?: number;
  holds?: AccessPort;
}

/** An uplink that has not begun, and the platform that it posts to. */
export function planted(clock: ManualClock, { answering, options, perMinute = 0, holds }: Around = {}) {
  const platform = new DirectPlatform(clock, answering);
  return { platform, plant: new Plant(clock, platform, options, perMinute, undefined, holds) };
}

/** Puts another call in the place of one of the buffer's; it is given what stood there. */
export function instead<Call extends keyof OutgoingBuffer>(
  buffer: MemoryBuffer,
  call: Call,
  other: (works: OutgoingBuffer[Call]) => OutgoingBuffer[Call],
): void {
  Object.assign(buffer, { [call]: other(buffer[call].bind(buffer) as OutgoingBuffer[Call]) });
}

/** Ends it without a budget. */
export async function ended({ clock, uplink }: Plant): Promise<void> {
  const stopped = uplink.stop(0);
  await (clock as ManualClock).advance(1_000);
  await stopped;
}
