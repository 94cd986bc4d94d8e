import type { ServerResponse } from 'node:http';

/** Who does not read so much meanwhile is ended, and comes again where it stopped. */
export const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** One server-sent event as it goes over the wire. JSON has no line feeds of its own. */
export function eventFrame(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Writes events to one who reads them; ends the connection of one who does not. */
export function writeFrames(response: ServerResponse, frames: string): void {
  if (response.writableEnded || response.destroyed || frames === '') return;
  response.write(frames);
  if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
}
