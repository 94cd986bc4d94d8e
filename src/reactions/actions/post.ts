import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { codeOf, messageOf } from '../../base/errors.ts';
import { Agent as HttpAgent, request as requestHttp } from '../../base/node-http.ts';
import type { Action } from '../../config/action-kinds.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { addressCorrection, printableAddress } from '../../config/problem.ts';
import { readAddress } from '../../config/setting-forms.ts';
import type { ActionKind } from '../action-kind.ts';
import { fillBody } from '../template.ts';

interface PostAction extends Action {
  kind: 'post';
  url: string;
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  timeoutMs: number;
}

const TIMEOUT_MS = 10_000;
/** Maximum response size. If a response is larger, the rest is not read. */
const MAX_RESPONSE_BYTES = 1_000_000;

/**
 * Posts the event to a receiver in the plant, such as Node-RED. Does not use the platform's proxy, token or CA, and
 * does not follow redirects.
 */
export const POST: ActionKind<PostAction> = {
  kind: 'post',
  shape: {
    type: 'string',
    title: 'an http address',
    description: 'Posts the JSON of the event, or `body`, to this address.',
    examples: ['http://127.0.0.1:1880/alarm'],
  },
  members: {
    timeout: { ...DURATION_SCHEMA, description: 'maximum time until the response is complete. Default: 10s.' },
    body: { description: 'content to send instead of the event, with templates such as {{content.data.value}}.' },
    headers: {
      type: 'object',
      title: 'a mapping of header names to strings',
      description: 'additional headers.',
      examples: [{ 'X-Site': 'north' }],
      propertyNames: { pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", title: 'a header name', examples: ['X-Site'] },
      additionalProperties: {
        type: 'string',
        pattern: '^[^\\u0000-\\u0008\\u000a-\\u001f\\u007f]*$',
        title: 'a header value',
        examples: ['north'],
      },
    },
  },
  templates: ['body'],

  read({ post, body, headers }, report) {
    const timeoutMs = report.timeout(TIMEOUT_MS);
    const url = readAddress(post as string, ['http', 'https'], false);
    if ('reason' in url) {
      const address = printableAddress(post as string);
      const instead = addressCorrection(post as string, 'use a value such as http://127.0.0.1:1880/alarm');
      report.problem('post', `"${address}" ${url.reason}`, instead, address);
      return undefined;
    }
    if (timeoutMs === undefined) return undefined;
    const texts = Object.entries(headers ?? {}).map(([name, value]) => [name, String(value)]);
    return {
      kind: 'post',
      url: url.value,
      ...(body === undefined ? {} : { body }),
      ...(texts.length === 0 ? {} : { headers: Object.fromEntries(texts) }),
      timeoutMs,
    };
  },

  nameOf({ url }) {
    const parsed = URL.parse(url);
    // Omit the query, because it may contain a key.
    return `post ${parsed ? `${parsed.protocol}//${parsed.host}${parsed.pathname}` : '(invalid address)'}`;
  },
  targetOf: ({ url }) => `post ${URL.parse(url)?.origin ?? '(invalid address)'}`,

  async perform(action, { event, signal }) {
    const { text, isJson } = fillBody(action.body, event);
    const body = Buffer.from(text);
    const headers = {
      'content-type': isJson ? 'application/json' : 'text/plain; charset=utf-8',
      'user-agent': 'tagferry',
      // An event may be posted more than once. Receivers can detect duplicates by this number.
      'x-tagferry-event': String(event.id),
      ...lowerCased(action.headers ?? {}),
      'content-length': String(body.length),
    };
    const ended = AbortSignal.any([signal, AbortSignal.timeout(action.timeoutMs)]);
    try {
      const status = await send(new URL(action.url), headers, body, ended);
      return { outcome: status >= 200 && status < 300 ? 'done' : 'failed', detail: `status ${status}` };
    } catch (error) {
      if (signal.aborted) return { outcome: 'interrupted' };
      if (!ended.aborted) return { outcome: 'failed', detail: codeOf(error) ?? messageOf(error) };
      return { outcome: 'failed', detail: `no response within ${action.timeoutMs} ms`, timedOut: true };
    }
  },
};

function send(url: URL, headers: Record<string, string>, body: Buffer, signal: AbortSignal): Promise<number> {
  const secure = url.protocol === 'https:';
  const agent = secure ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false });
  return new Promise((resolve, reject) => {
    const request = (secure ? requestHttps : requestHttp)(url, { method: 'POST', headers, agent, signal });
    request.on('error', reject);
    request.on('response', (response) => {
      const status = response.statusCode ?? 0;
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes <= MAX_RESPONSE_BYTES) return;
        resolve(status);
        response.destroy();
      });
      response.on('end', () => resolve(status));
      response.on('error', reject);
    });
    request.end(body);
  });
}

function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}
