import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../../contract/webhooks.ts';
import { signatureHeaders, type WebhookPost } from './sender.ts';

/** Expected response of a receiver (platform 6.1 and 7): a 2XX, a 4XX, or either. */
export type Verdict = 'accept' | 'reject' | 'either';

interface Tampering {
  does: string;
  verdict: Verdict;
  /** Returns the changed post. If unset, only the time of the attempt changes. */
  change?(post: WebhookPost): WebhookPost;
}

const FOREIGN_SECRET = 'a secret that is not the webhook’s';

/**
 * Ways to tamper with a delivery, each with the response that a receiver must return (platform 7). A receiver must
 * reject a missing or invalid signature, and accept all other deliveries signed by the platform. If the interface does
 * not specify the response, both are correct.
 */
export const TAMPERINGS = {
  forged: { does: 'signed with a different secret', verdict: 'reject', change: forged },
  unsigned: {
    does: 'no signature header',
    verdict: 'reject',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: undefined, [SIGNATURE_SHA1_HEADER]: undefined }),
  },
  'sha1-only': {
    does: 'the deprecated SHA-1 header alone',
    verdict: 'reject',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: undefined }),
  },
  'sha1-right': {
    does: 'a forged SHA-256 header with a valid SHA-1 header',
    verdict: 'reject',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: foreignSignature(post) }),
  },
  'sha256-only': {
    does: 'no SHA-1 header (optional)',
    verdict: 'accept',
    change: (post) => headed(post, { [SIGNATURE_SHA1_HEADER]: undefined }),
  },
  truncated: {
    does: 'signature truncated after 16 characters',
    verdict: 'reject',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: signatureOf(post).slice(0, 16) }),
  },
  'header-case': {
    does: 'header names in upper case',
    verdict: 'accept',
    change: (post) => ({
      ...post,
      headers: Object.fromEntries(Object.entries(post.headers).map(([name, value]) => [name.toUpperCase(), value])),
    }),
  },
  'value-case': {
    does: 'signature in upper case',
    verdict: 'either',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: signatureOf(post).toUpperCase() }),
  },
  repeated: {
    does: 'signature header repeated',
    verdict: 'either',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: [signatureOf(post), signatureOf(post)] }),
  },
  'repeated-forged': {
    does: 'a forged signature header before the valid one',
    verdict: 'reject',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: [foreignSignature(post), signatureOf(post)] }),
  },
  reserialised: {
    does: 'body reformatted, signatures unchanged',
    verdict: 'reject',
    change: (post) => ({ ...post, body: Buffer.from(JSON.stringify(JSON.parse(post.body.toString('utf8')), null, 2)) }),
  },
  altered: {
    does: 'one character of the body changed',
    verdict: 'reject',
    change: (post) => ({ ...post, body: Buffer.from(post.body.toString('utf8').replace(/\d(?=\D*$)/, otherDigit)) }),
  },
  'content-type': {
    does: 'sent as text/plain',
    verdict: 'either',
    change: (post) => headed(post, { 'content-type': 'text/plain' }),
  },
  redirected: {
    does: 'a GET without a body, as after a 302',
    verdict: 'reject',
    change: (post) => ({ ...post, method: 'GET', body: Buffer.alloc(0) }),
  },
  trickle: {
    does: 'body sent in pieces over about two seconds',
    verdict: 'accept',
    change: (post) => ({ ...post, pieces: { count: 20, everyMs: 100 } }),
  },
  duplicate: { does: 'the same delivery twice', verdict: 'accept' },
  reordered: { does: 'sent after a later delivery', verdict: 'accept' },
  delayed: { does: 'delayed', verdict: 'accept' },
} as const satisfies Readonly<Record<string, Tampering>>;

export type TamperingName = keyof typeof TAMPERINGS;
export const TAMPERING_NAMES = Object.keys(TAMPERINGS) as readonly TamperingName[];

/** Returns the tampered post. */
export function tampered(name: TamperingName, post: WebhookPost): WebhookPost {
  const { change }: Tampering = TAMPERINGS[name];
  return change?.(post) ?? post;
}

/** Returns whether a response matches the verdict. */
export function isRight(verdict: Verdict, answer: number | string): boolean {
  if (typeof answer !== 'number') return false;
  const isTaken = answer >= 200 && answer < 300;
  const isRefused = answer >= 400 && answer < 500;
  return (isTaken && verdict !== 'reject') || (isRefused && verdict !== 'accept');
}

function forged(post: WebhookPost): WebhookPost {
  return { ...post, headers: { ...post.headers, ...signatureHeaders(post.body, FOREIGN_SECRET) } };
}

function foreignSignature(post: WebhookPost): string {
  return signatureHeaders(post.body, FOREIGN_SECRET)[SIGNATURE_SHA256_HEADER]!;
}

function signatureOf(post: WebhookPost): string {
  return String(post.headers[SIGNATURE_SHA256_HEADER]);
}

function otherDigit(digit: string): string {
  return String((Number(digit) + 1) % 10);
}

/** Returns the post with changed headers; undefined removes a header. */
function headed(post: WebhookPost, changes: Record<string, string | string[] | undefined>): WebhookPost {
  const headers: WebhookPost['headers'] = {};
  for (const [name, value] of Object.entries({ ...post.headers, ...changes })) {
    if (value !== undefined) headers[name] = value;
  }
  return { ...post, headers };
}
