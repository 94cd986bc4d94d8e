import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../../contract/webhooks.ts';
import { signatureHeaders, type WebhookPost } from './sender.ts';

/** What a receiver does right (platform 6.1 and 7): take with a 2XX, refuse with a 4XX, or either of them, but answer. */
export type Verdict = 'take' | 'refuse' | 'either';

interface Tampering {
  does: string;
  verdict: Verdict;
  /** Section of docs/platform.md that says so. */
  section: string;
  /** The post that goes out instead; without, only its time is another. */
  change?(post: WebhookPost): WebhookPost;
}

const FOREIGN_SECRET = 'a secret that is not the webhook’s';

/**
 * What may happen to a delivery on its way to a receiver, and what section 7 asks of the receiver then: a signature that is missing or is
 * not that of the bytes that came is refused; everything else that was signed by the platform is confirmed, whenever and however often
 * it comes. Where the interface says nothing, either is right, and only an error or no answer is wrong.
 */
export const TAMPERINGS = {
  forged: { does: 'signed with another secret', verdict: 'refuse', section: '7', change: forged },
  unsigned: {
    does: 'no signature header',
    verdict: 'refuse',
    section: '7',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: undefined, [SIGNATURE_SHA1_HEADER]: undefined }),
  },
  'sha1-only': {
    does: 'the deprecated SHA-1 header alone',
    verdict: 'refuse',
    section: '7',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: undefined }),
  },
  'sha1-right': {
    does: 'a forged SHA-256 beside a right SHA-1',
    verdict: 'refuse',
    section: '7',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: foreignSignature(post) }),
  },
  'sha256-only': {
    does: 'no SHA-1 header, which may be removed',
    verdict: 'take',
    section: '6.1',
    change: (post) => headed(post, { [SIGNATURE_SHA1_HEADER]: undefined }),
  },
  truncated: {
    does: 'the signature cut after 16 characters',
    verdict: 'refuse',
    section: '7',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: signatureOf(post).slice(0, 16) }),
  },
  'header-case': {
    does: 'names of headers in another case',
    verdict: 'take',
    section: '6.1',
    change: (post) => ({
      ...post,
      headers: Object.fromEntries(Object.entries(post.headers).map(([name, value]) => [name.toUpperCase(), value])),
    }),
  },
  'value-case': {
    does: 'the signature in upper case',
    verdict: 'either',
    section: '6.1',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: signatureOf(post).toUpperCase() }),
  },
  repeated: {
    does: 'the signature header twice',
    verdict: 'either',
    section: '6.1',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: [signatureOf(post), signatureOf(post)] }),
  },
  'repeated-forged': {
    does: 'a forged signature header before the right one',
    verdict: 'refuse',
    section: '7',
    change: (post) => headed(post, { [SIGNATURE_SHA256_HEADER]: [foreignSignature(post), signatureOf(post)] }),
  },
  reserialised: {
    does: 'the body parsed and written anew on the way, its signatures as they were',
    verdict: 'refuse',
    section: '6.1',
    change: (post) => ({ ...post, body: Buffer.from(JSON.stringify(JSON.parse(post.body.toString('utf8')), null, 2)) }),
  },
  altered: {
    does: 'one character of the body changed',
    verdict: 'refuse',
    section: '7',
    change: (post) => ({ ...post, body: Buffer.from(post.body.toString('utf8').replace(/\d(?=\D*$)/, otherDigit)) }),
  },
  'content-type': {
    does: 'sent as text/plain',
    verdict: 'either',
    section: '6',
    change: (post) => headed(post, { 'content-type': 'text/plain' }),
  },
  redirected: {
    does: 'a GET without body, as a 302 on the way makes of it',
    verdict: 'refuse',
    section: '7',
    change: (post) => ({ ...post, method: 'GET', body: Buffer.alloc(0) }),
  },
  trickle: {
    does: 'the body in pieces over some two seconds',
    verdict: 'take',
    section: '6.1',
    change: (post) => ({ ...post, pieces: { count: 20, everyMs: 100 } }),
  },
  duplicate: { does: 'the same delivery twice', verdict: 'take', section: '6.1' },
  reordered: { does: 'held back until a later one was sent', verdict: 'take', section: '6.1' },
  delayed: { does: 'late', verdict: 'take', section: '6.1' },
} as const satisfies Readonly<Record<string, Tampering>>;

export type TamperingName = keyof typeof TAMPERINGS;
export const TAMPERING_NAMES = Object.keys(TAMPERINGS) as readonly TamperingName[];

/** The post as it goes out. */
export function tampered(name: TamperingName, post: WebhookPost): WebhookPost {
  const { change }: Tampering = TAMPERINGS[name];
  return change?.(post) ?? post;
}

/** Whether an answer is right by the verdict. */
export function isRight(verdict: Verdict, answer: number | string): boolean {
  if (typeof answer !== 'number') return false;
  const isTaken = answer >= 200 && answer < 300;
  const isRefused = answer >= 400 && answer < 500;
  return (isTaken && verdict !== 'refuse') || (isRefused && verdict !== 'take');
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

/** With these headers; one that is `undefined` falls away. */
function headed(post: WebhookPost, changes: Record<string, string | string[] | undefined>): WebhookPost {
  const headers: WebhookPost['headers'] = {};
  for (const [name, value] of Object.entries({ ...post.headers, ...changes })) {
    if (value !== undefined) headers[name] = value;
  }
  return { ...post, headers };
}
