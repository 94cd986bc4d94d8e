import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import {
  beginSignIn,
  carriesState,
  codeGrantRequest,
  codeOfRedirect,
  type PersonClient,
  processPersonAnswer,
  type SignIn,
} from '../../platform/grants/person.ts';
import type { Tokens } from '../../platform/grants/token-answer.ts';
import type { HttpBoundary } from '../../platform/http-boundary.ts';
import { hasBrowser, openBrowser } from './browser.ts';
import { type ComeBack, isLoopbackRedirect, LoopbackListener, redirectAddress } from './loopback.ts';
import { pastedAddress } from './pasted-address.ts';

export interface SignInOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The spec's {web_url}. */
  identityUrl: string;
  client: PersonClient;
  redirect: string;
  /** The redirect address comes by the terminal; nothing listens. */
  paste: boolean;
  /** Whether a browser may be opened. */
  browser: boolean;
  environment: NodeJS.ProcessEnv;
  clock: Clock;
  /** Tells the person something. */
  tell(text: string): void;
}

/** As long as a code may live (RFC 6749 section 4.1.2): enough to find a password, too short to be forgotten open. */
const PATIENCE_MS = 10 * 60_000;

/** Leads a person through the sign-in and gives the tokens (platform 5.3, 5.4). Throws `PlatformError`, `TagferryError`. */
export async function signInPerson(options: SignInOptions): Promise<Tokens> {
  const redirect = redirectAddress(options.redirect);
  const listens = !options.paste && isLoopbackRedirect(redirect);
  if (!listens && redirect.port === '0') throw new UsageError('port 0 is no address to be sent to', 'Name a port.');
  const listener = listens ? new LoopbackListener(redirect, options.clock) : undefined;
  const redirectUri = listener === undefined ? options.redirect : await listener.start();
  const over = new AbortController();
  try {
    const signIn = beginSignIn(options.identityUrl, options.client, redirectUri);
    await showAddress(signIn, options);
    const comeBack = await nextComeBack(signIn, listener, options, over);
    return await exchange(signIn, comeBack, options);
  } finally {
    over.abort(new Error('the sign-in is over'));
    await listener?.stop();
  }
}

async function showAddress(signIn: SignIn, options: SignInOptions): Promise<void> {
  const { tell, environment } = options;
  const opened = options.browser && !options.paste && hasBrowser(environment) && (await openBrowser(signIn.address));
  tell(opened ? 'A browser opens to sign in; if it does not, open this address:' : 'Open this address to sign in:');
  tell(signIn.address.href);
}

/** The browser at the listener, or an address pasted into the terminal, whichever is first. */
async function nextComeBack(
  signIn: SignIn,
  listener: LoopbackListener | undefined,
  options: SignInOptions,
  over: AbortController,
): Promise<ComeBack> {
  const ways: Promise<ComeBack>[] = [tooLate(options.clock, over.signal)];
  if (listener) ways.push(listener.wait((redirect) => carriesState(redirect, signIn)));
  if (!listener || process.stdin.isTTY) {
    const question = listener
      ? 'Signed in on another machine? Paste the address its browser ended at: '
      : 'Paste the address that the browser was sent to: ';
    const pasted = pastedAddress(
      question,
      (redirect): ComeBack => {
        codeOfRedirect(redirect, signIn);
        return { redirect, respond: () => undefined };
      },
      over.signal,
    );
    // Beside a listener the terminal may go away without ending the wait.
    ways.push(listener ? pasted.catch(() => new Promise<never>(() => undefined)) : pasted);
  }
  for (const way of ways) way.catch(() => undefined);
  return await Promise.race(ways);
}

async function tooLate(clock: Clock, signal: AbortSignal): Promise<never> {
  await clock.sleep(PATIENCE_MS, signal);
  throw new TagferryError('nobody signed in within ten minutes', {
    code: 'person.sign_in_timeout',
    retryable: true,
    hint: 'Start `tagferry login` again; where the browser runs on another machine, use --paste.',
  });
}

async function exchange(signIn: SignIn, comeBack: ComeBack, options: SignInOptions): Promise<Tokens> {
  const { boundary, identityUrl, client, clock } = options;
  try {
    const asked = codeGrantRequest(identityUrl, client, signIn, codeOfRedirect(comeBack.redirect, signIn));
    const tokens = processPersonAnswer(await boundary.send(asked), clock.wallMs());
    comeBack.respond(true, 'You are signed in. This page may be closed.');
    return tokens;
  } catch (error) {
    comeBack.respond(false, `The sign-in failed: ${messageOf(error)}. The terminal says more.`);
    throw error;
  }
}
