import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { codeOf, messageOf } from '../base/errors.ts';
import { request as httpRequest } from '../base/node-http.ts';
import { SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import { SELF_TEST_TYPE } from './inbox-event.ts';
import { sign } from './signature.ts';

/**
 * `tagferry webhook test`: what the platform would meet. An unsigned body has to be refused with 401, a signed one to be answered
 * 204. The signed body is always the same: no event type that anyone knows, so that nothing runs, and no second entry in the
 * inbox, where the first stays marked `unrecognised`.
 */
export const SELF_TEST_BODY = Buffer.from(`{"event_type":"${SELF_TEST_TYPE}","content":{}}`);

/**
 * Carries a mark that only this process knows: the listener then does not warn of the unsigned body that it is sent on purpose.
 * It opens nothing; whoever forged it would only be counted as `self_test`.
 */
export const SELF_TEST_HEADER = 'x-tagferry-self-test';

/** Posts a body and gives the status of the answer; throws where there is none. */
export type SendTest = (headers: Readonly<Record<string, string>>, body: Buffer) => Promise<number>;

export interface SelfTestTarget {
  /** `listener`: as it stands on this machine; `public`: through WEBHOOK_URL. */
  name: 'listener' | 'public';
  address: string;
  send: SendTest;
}

export interface SelfTestLine {
  target: SelfTestTarget['name'];
  address: string;
  check: 'unsigned' | 'signed';
  ok: boolean;
  /** Of the answer; `null` where there was none. */
  status: number | null;
  message: string;
  /** What to do next; empty where all is well. */
  next: string;
}

const WANTED = { unsigned: 401, signed: 204 } as const;
const PATIENCE_MS = 15_000;

/** Runs both checks against each target; `mark` goes with every request. Never throws: what goes wrong is a line. */
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
    // One that cannot be reached would only say the same again.
    if (unsigned.status === null) continue;
    if (secret === undefined) {
      lines.push(lineOf(target, 'signed', null, 'no secret of the webhook is known here yet', HINTS.noSecret));
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
    if (status === WANTED[check]) return lineOf(target, check, status, `${check} body answered ${status}`, '');
    const message = `${check} body answered ${status} instead of ${WANTED[check]}`;
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
  listener: 'Check WEBHOOK_LISTEN, and that the daemon runs.',
  public:
    'Check name, port forwarding, firewall, certificate and reverse proxy of WEBHOOK_URL. A router may only turn its own network away: from outside, `curl -i -X POST` of the address has to answer 401.',
  noSecret: 'Run `tagferry webhook register`; with a webhook made by hand set WEBHOOK_SECRET.',
};

function hintFor(status: number, target: SelfTestTarget['name']): string {
  if (status === 503) return HINTS.noSecret;
  if (status === 401) return 'Another gateway, or another secret: `tagferry webhook ls`, then `rotate-secret`.';
  if (status === 404) return 'The path of WEBHOOK_URL must reach the listener unchanged: look at the reverse proxy.';
  if (status === 413) return 'The reverse proxy takes only small bodies: let it take 1 MiB.';
  if (status === 502 || status === 504) return 'The reverse proxy does not reach WEBHOOK_LISTEN: check its upstream.';
  if (status >= 300 && status < 400) return 'It redirects: write the final address in WEBHOOK_URL.';
  if (target === 'public') return 'Something else answers at WEBHOOK_URL: check its name and the reverse proxy.';
  return 'Look at the log of the daemon: `journalctl -u tagferry`.';
}

/** Posts straight to a listener of this machine; its own certificate is not looked at here. */
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

/** A listener on all addresses is reached on the loopback one. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' ? '::1' : host;
}
