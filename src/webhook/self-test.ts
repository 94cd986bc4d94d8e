import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { codeOf, messageOf } from '../base/errors.ts';
import { request as httpRequest } from '../base/node-http.ts';
import { SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import { SELF_TEST_TYPE } from './inbox-event.ts';
import { sign } from './signature.ts';

/**
 * Implements `tagferry webhook test`: the response to an unsigned body must be 401, and to a signed body 204. The
 * signed body is always the same unrecognised event, so that no reaction runs and the inbox stores it only once.
 */
export const SELF_TEST_BODY = Buffer.from(`{"event_type":"${SELF_TEST_TYPE}","content":{}}`);

/** Header with a mark that only this process knows, so that the listener does not warn about the unsigned body. */
export const SELF_TEST_HEADER = 'x-tagferry-self-test';

/** Posts a body and returns the response status. Throws if there is no response. */
export type SendTest = (headers: Readonly<Record<string, string>>, body: Buffer) => Promise<number>;

export interface SelfTestTarget {
  /** `listener`: the listener on this machine. `public`: the public address in WEBHOOK_URL. */
  name: 'listener' | 'public';
  address: string;
  send: SendTest;
}

export interface SelfTestLine {
  target: SelfTestTarget['name'];
  address: string;
  check: 'unsigned' | 'signed';
  ok: boolean;
  /** `null` if there was no response. */
  status: number | null;
  message: string;
  /** Next step for the user; empty if the check passed. */
  next: string;
}

const WANTED = { unsigned: 401, signed: 204 } as const;
const PATIENCE_MS = 15_000;

/** Runs both checks against each target. Never throws: errors are reported as lines. */
export async function testWebhook(
  targets: readonly SelfTestTarget[],
  secret: string | undefined,
  mark = '',
): Promise<SelfTestLine[]> {
  const marked: Record<string, string> = mark === '' ? {} : { [SELF_TEST_HEADER]: mark };
  const lines: SelfTestLine[] = [];
  for (const target of targets) {
    const unsigned = await testOne(target, 'unsigned', marked);
    lines.push(unsigned);
    // Skip the signed check, because it would fail in the same way if the target is unreachable.
    if (unsigned.status === null) continue;
    if (secret === undefined) {
      lines.push(lineOf(target, 'signed', null, 'the webhook secret is not known yet', HINTS.noSecret));
      continue;
    }
    lines.push(await testOne(target, 'signed', { ...marked, [SIGNATURE_SHA256_HEADER]: sign(SELF_TEST_BODY, secret) }));
  }
  return lines;
}

async function testOne(
  target: SelfTestTarget,
  check: SelfTestLine['check'],
  headers: Readonly<Record<string, string>>,
): Promise<SelfTestLine> {
  try {
    const status = await target.send({ 'content-type': 'application/json', ...headers }, SELF_TEST_BODY);
    if (status === WANTED[check]) return lineOf(target, check, status, `${check} body: status ${status}`, '');
    const message = `${check} body: status ${status} instead of ${WANTED[check]}`;
    return lineOf(target, check, status, message, hintFor(status, target.name));
  } catch (error) {
    const why = codeOf(error)?.startsWith('platform.') ? messageOf(error) : (codeOf(error) ?? messageOf(error));
    return lineOf(target, check, null, `not reachable from this machine: ${why}`, HINTS[target.name]);
  }
}

function lineOf(
  target: SelfTestTarget,
  check: SelfTestLine['check'],
  status: number | null,
  message: string,
  next: string,
): SelfTestLine {
  return { target: target.name, address: target.address, check, ok: status === WANTED[check], status, message, next };
}

const HINTS = {
  listener: 'Check WEBHOOK_LISTEN, and that the agent is running.',
  public:
    'Check name, port forwarding, firewall, certificate and reverse proxy of WEBHOOK_URL. Some routers reject only connections from their own network: from outside, `curl -i -X POST` to the address must return 401.',
  noSecret: 'Run `tagferry webhook register`. For a webhook registered manually, set WEBHOOK_SECRET.',
};

function hintFor(status: number, target: SelfTestTarget['name']): string {
  if (status === 503) return HINTS.noSecret;
  if (status === 401)
    return 'Another gateway responds, or the secret differs. Run `tagferry webhook ls`, then `tagferry webhook rotate-secret`.';
  if (status === 404) return 'Check that the reverse proxy forwards the path of WEBHOOK_URL unchanged.';
  if (status === 413) return 'Increase the body limit of the reverse proxy to 1 MiB.';
  if (status === 502 || status === 504)
    return 'Check the upstream of the reverse proxy: it cannot reach WEBHOOK_LISTEN.';
  if (status >= 300 && status < 400) return 'Set WEBHOOK_URL to the final address of the redirect.';
  if (target === 'public') return 'Check the host name of WEBHOOK_URL and the reverse proxy: another server responds.';
  return 'Check the agent log: `journalctl -u tagferry`.';
}

/** Posts to the listener on this machine, without verifying its certificate. */
export function sendToListener(address: AddressInfo | string, path: string, tls: boolean): SendTest {
  return (headers, body) =>
    new Promise((resolve, reject) => {
      const place =
        typeof address === 'string'
          ? { socketPath: address }
          : { host: reachable(address.address), port: address.port };
      const options = {
        ...place,
        path,
        method: 'POST',
        headers: { ...headers, 'content-length': body.length },
        agent: false as const,
        signal: AbortSignal.timeout(PATIENCE_MS),
      };
      const outgoing = tls ? httpsRequest({ ...options, rejectUnauthorized: false }) : httpRequest(options);
      outgoing.on('response', (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      outgoing.on('error', reject);
      outgoing.end(body);
    });
}

/** Returns the loopback address if the listener listens on all addresses. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' ? '::1' : host;
}
