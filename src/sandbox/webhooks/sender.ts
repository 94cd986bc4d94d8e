import { createHmac } from 'node:crypto';
import type { ClientRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { systemClock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { request as httpRequest } from '../../base/node-http.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../../contract/webhooks.ts';

export interface WebhookPost {
  url: string;
  body: Buffer;
  headers: Record<string, string | string[]>;
  /** Default: POST. */
  method?: 'GET';
  /** Number of pieces in which the body is sent, and the interval between them. Default: one piece. */
  pieces?: { count: number; everyMs: number };
}

/** Makes one delivery attempt. Returns the response status, or the reason why there was no response. Never throws. */
export type SendWebhook = (post: WebhookPost) => Promise<number | string>;

/** Returns both signature headers (platform 6.1), which contain the HMAC of the raw body in hexadecimal. */
export function signatureHeaders(body: Buffer, secret: string): Record<string, string> {
  return {
    [SIGNATURE_SHA256_HEADER]: `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
    [SIGNATURE_SHA1_HEADER]: `sha1=${createHmac('sha1', secret).update(body).digest('hex')}`,
  };
}

/** Returns a sender that opens one connection per attempt. The timeout is in real time. */
export function httpSender(timeoutMs: number, certificateAuthority?: string): SendWebhook {
  return (post) =>
    new Promise((resolve) => {
      const url = new URL(post.url);
      const options = {
        method: post.method ?? 'POST',
        headers: { ...post.headers, ...(post.method === undefined ? { 'content-length': post.body.length } : {}) },
        agent: false as const,
        signal: AbortSignal.timeout(timeoutMs),
        ...(certificateAuthority === undefined ? {} : { ca: certificateAuthority }),
      };
      const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, options, (response) => {
        response.on('error', () => resolve('invalid response'));
        response.resume();
        resolve(response.statusCode ?? 'no status');
      });
      request.on('error', (error) => {
        resolve(
          error.name === 'AbortError' || error.name === 'TimeoutError'
            ? 'timeout'
            : (codeOf(error) ?? messageOf(error)),
        );
      });
      if (post.pieces === undefined) request.end(post.body);
      else void writePieces(request, post.body, post.pieces);
    });
}

async function writePieces(
  request: ClientRequest,
  body: Buffer,
  { count, everyMs }: NonNullable<WebhookPost['pieces']>,
): Promise<void> {
  const bytes = Math.max(1, Math.ceil(body.length / count));
  for (let at = 0; at < body.length && !request.destroyed; at += bytes) {
    request.write(body.subarray(at, at + bytes));
    await systemClock.sleep(everyMs);
  }
  request.end();
}
