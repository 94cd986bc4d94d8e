import type { Agent } from 'node:http';
import { request } from '../../base/node-http.ts';

export interface SocketAnswer {
  status: number;
  text: string;
}

/** The agent's answers are small, and it is near. */
const MAX_BYTES = 4 * 1024 * 1024;
const PATIENCE_MS = 10_000;

/** A Unix socket, or a port of loopback with the token that it wants. */
export type CalledPlace = string | { port: number; token: string };

/** One request to a listener of this machine; POST where there is a body. Rejects where there is no answer. */
export function callSocket(
  place: CalledPlace,
  path: string,
  options: { body?: string; agent?: Agent } = {},
): Promise<SocketAnswer> {
  const { body, agent } = options;
  const to = typeof place === 'string' ? { socketPath: place } : { host: '127.0.0.1', port: place.port };
  const token: Record<string, string> = typeof place === 'string' ? {} : { Authorization: `Bearer ${place.token}` };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        ...to,
        path,
        method: body === undefined ? 'GET' : 'POST',
        headers: body === undefined ? token : { ...token, 'Content-Type': 'application/json' },
        timeout: PATIENCE_MS,
        agent: agent ?? false,
      },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
          if (text.length > MAX_BYTES) outgoing.destroy(new Error('the answer is too long'));
        });
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
        answer.on('error', reject);
      },
    );
    outgoing.on('timeout', () => outgoing.destroy(new Error('no answer in time')));
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}
