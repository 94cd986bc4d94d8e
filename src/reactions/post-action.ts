import type { IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { codeOf, messageOf } from '../base/errors.ts';
import { Agent as HttpAgent, request as requestHttp } from '../base/node-http.ts';
import type { Action } from '../config/reactions.ts';
import type { ActionContext, ActionResult } from './action.ts';
import { fillBody } from './template.ts';

type PostAction = Extract<Action, { kind: 'post' }>;

/** Of an answer nobody reads it is only waited that it is whole. */
const MAX_ANSWER_BYTES = 1_000_000;

/**
 * Posts to the plant's side (Node-RED, a PLC gateway). Plain Node, with agents of its own: the platform's proxy, token and
 * authority are for the platform. Redirects are not followed: an alarm goes where the rule says.
 */
export async function postEvent(action: PostAction, context: ActionContext): Promise<ActionResult> {
  const { event, signal } = context;
  if (signal.aborted) return { outcome: 'interrupted' };
  const { text, isJson } = fillBody(action.body, event);
  const body = Buffer.from(text);
  const headers = {
    'content-type': isJson ? 'application/json' : 'text/plain; charset=utf-8',
    'user-agent': 'tagferry',
    // At least once: by this a receiver knows a repeat.
    'x-tagferry-event': String(event.id),
    ...lowerCased(action.headers ?? {}),
    'content-length': String(body.length),
  };
  // One timeout over everything: name, connection, answer to its last byte.
  const cut = AbortSignal.any([signal, AbortSignal.timeout(action.timeoutMs)]);
  try {
    const status = await send(new URL(action.url), headers, body, cut);
    const taken = status >= 200 && status < 300;
    return { outcome: taken ? 'done' : 'failed', detail: `answered ${status}` };
  } catch (error) {
    if (signal.aborted) return { outcome: 'interrupted' };
    if (cut.aborted) return { outcome: 'failed', detail: `no response within ${action.timeoutMs} ms`, timedOut: true };
    return { outcome: 'failed', detail: codeOf(error) ?? messageOf(error) };
  }
}

function send(url: URL, headers: Record<string, string>, body: Buffer, signal: AbortSignal): Promise<number> {
  const secure = url.protocol === 'https:';
  const agent = secure ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false });
  return new Promise((resolve, reject) => {
    const call = (secure ? requestHttps : requestHttp)(url, { method: 'POST', headers, agent, signal });
    call.on('error', reject);
    call.on('response', (answer) => {
      readAway(answer, () => resolve(answer.statusCode ?? 0), reject);
    });
    call.end(body);
  });
}

function readAway(answer: IncomingMessage, whenWhole: () => void, reject: (error: Error) => void): void {
  let bytes = 0;
  answer.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= MAX_ANSWER_BYTES) return;
    // The status is known; the rest does not matter.
    whenWhole();
    answer.destroy();
  });
  answer.on('end', whenWhole);
  answer.on('error', reject);
}

function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}
