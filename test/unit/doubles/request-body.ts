import type { IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';

/** Returns the body of a request, or `undefined` if the client closed the connection before its end. */
export function requestBody(request: IncomingMessage): Promise<Buffer | undefined> {
  return buffer(request).catch(() => undefined);
}
