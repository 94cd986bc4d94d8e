import { messageOf } from '../../base/errors.ts';
import type { Gate } from '../gate.ts';
import type { Point } from '../points.ts';
import type { MqttValue } from './mqtt-value.ts';
import { Payload } from './payload.ts';

/** Larger messages hold no reading. */
export const MAX_PAYLOAD_BYTES = 1024 * 1024;

/**
 * Reads a message's values into the gate: whether any goes to the disk, and why none could be read where that is so. `timeOf`: what a value
 * without a time of its own gets in place of the time of arrival.
 */
export function readMessage(
  gate: Gate,
  message: { payload: Uint8Array; headers?: ReadonlyMap<string, string> },
  arrivalMs: number,
  points: readonly Point<MqttValue>[],
  timeOf?: (series: number) => number,
): { isTaken: boolean; problem: string | undefined } {
  const payload = new Payload(message.payload, arrivalMs, message.headers);
  let problem: string | undefined;
  let hasRead = false;
  let isTaken = false;
  for (const point of points) {
    try {
      const { value, timeMs, quality } = payload.read(point.spec);
      hasRead = true;
      isTaken = gate.take(point, value, timeMs ?? timeOf?.(point.series), quality) || isTaken;
    } catch (error) {
      problem = messageOf(error);
      isTaken = gate.fail(point, problem) || isTaken;
    }
  }
  // A message with some of its values is a sender that sends what has changed.
  return { isTaken, problem: hasRead ? undefined : (problem ?? 'it is empty') };
}
