import { createInterface } from 'node:readline';
import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import {
  beginSignIn,
  carriesState,
  codeGrantRequest,
  codeOfRedirect,
  type PersonClient,
  type SignIn,
} from '../../platform/grants.ts';
import type { HttpBoundary } from '../../platform/http-boundary.ts';
import { processTokenAnswer, type Tokens } from '../../platform/response-meanings.ts';
import { hasBrowser, openBrowser } from '../terminal/input.ts';
import { isLoopbackRedirect, LoopbackListener, type RedirectVisit, redirectAddress } from './loopback.ts';

export interface SignInOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** {web_url} in the specification. */
  identityUrl: string;
  client: PersonClient;
  redirect: string;
  /** Whether the user pastes the redirect URL and no listener is started. */
  paste: boolean;
  /** Whether a browser may be opened. */
  browser: boolean;
  environment: NodeJS.ProcessEnv;
  clock: Clock;
  /** Prints a message to the user. */
  say(text: string): void;
}

/** Maximum lifetime of an authorization code (RFC 6749 section 4.1.2). */
const TIMEOUT_MS = 10 * 60_000;

/** Signs a user in and returns the tokens (platform 5.3, 5.4). Throws `PlatformError` or `TagferryError`. */
export async function signInPerson(options: SignInOptions): Promise<Tokens> {
  const redirect = redirectAddress(options.redirect);
  const listens = !options.paste && isLoopbackRedirect(redirect);
  if (!listens && redirect.port === '0')
    throw new UsageError('a redirect address requires a port other than 0', 'Specify a port.');
  const listener = listens ? new LoopbackListener(redirect, options.clock) : undefined;
  const redirectUri = listener === undefined ? options.redirect : await listener.start();
  const over = new AbortController();
  try {
    const signIn = beginSignIn(options.identityUrl, options.client, redirectUri);
    await showAddress(signIn, options);
    const visit = await nextVisit(signIn, listener, options, over);
    return await exchange(signIn, visit, options);
  } finally {
    over.abort(new Error('the sign-in has ended'));
    await listener?.stop();
  }
}

async function showAddress(signIn: SignIn, options: SignInOptions): Promise<void> {
  const { say, environment } = options;
  const opened = options.browser && !options.paste && hasBrowser(environment) && (await openBrowser(signIn.address));
  say(opened ? 'Opening a browser to sign in. If no browser opens, open this URL:' : 'Open this URL to sign in:');
  say(signIn.address.href);
}

/** Waits until a browser visits the listener or a URL is pasted into the terminal, whichever is first. */
async function nextVisit(
  signIn: SignIn,
  listener: LoopbackListener | undefined,
  options: SignInOptions,
  over: AbortController,
): Promise<RedirectVisit> {
  const ways: Promise<RedirectVisit>[] = [timeout(options.clock, over.signal)];
  if (listener) ways.push(listener.wait((redirect) => carriesState(redirect, signIn)));
  if (!listener || process.stdin.isTTY) {
    const question = listener
      ? 'If you signed in on another machine, paste the final URL from its browser: '
      : 'Paste the final URL from the browser: ';
    const pasted = pastedAddress(
      question,
      (redirect): RedirectVisit => {
        codeOfRedirect(redirect, signIn);
        return { redirect, respond: () => undefined };
      },
      over.signal,
    );
    // Standard input may be closed if there is a listener.
    ways.push(listener ? pasted.catch(() => new Promise<never>(() => undefined)) : pasted);
  }
  for (const way of ways) way.catch(() => undefined);
  return await Promise.race(ways);
}

async function timeout(clock: Clock, signal: AbortSignal): Promise<never> {
  await clock.sleep(TIMEOUT_MS, signal);
  throw new TagferryError('no sign-in was completed within ten minutes', {
    code: 'person.sign_in_timeout',
    retryable: true,
    hint: 'Run `tagferry login` again, with --paste if the browser runs on another machine.',
  });
}

async function exchange(signIn: SignIn, visit: RedirectVisit, options: SignInOptions): Promise<Tokens> {
  const { boundary, identityUrl, client } = options;
  try {
    const asked = codeGrantRequest(identityUrl, client, signIn, codeOfRedirect(visit.redirect, signIn));
    const tokens = processTokenAnswer(await boundary.send(asked), { grant: 'authorization_code', person: true });
    visit.respond(true, 'You are signed in. You can close this page.');
    return tokens;
  } catch (error) {
    visit.respond(false, `Sign-in failed: ${messageOf(error)}. See the terminal for details.`);
    throw error;
  }
}

/** Maximum number of invalid URLs. */
const MAX_TRIES = 5;

/**
 * Asks for the browser's final URL until `check` accepts it. `check` throws for an invalid URL. Rejects when the signal
 * fires or standard input ends.
 */
async function pastedAddress<Result>(
  question: string,
  check: (redirect: URL) => Result,
  signal: AbortSignal,
): Promise<Result> {
  const isTerminal = process.stdin.isTTY === true;
  const reader = createInterface({ input: process.stdin, output: process.stderr, terminal: isTerminal });
  reader.setPrompt(question);
  const close = () => reader.close();
  signal.addEventListener('abort', close, { once: true });
  // Ctrl-C cancels the sign-in, not only the current line.
  reader.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
  try {
    let tries = 0;
    reader.prompt();
    for await (const line of reader) {
      try {
        return check(addressIn(line.trim()));
      } catch (error) {
        if (!isTerminal || ++tries >= MAX_TRIES) throw error;
        process.stderr.write(`${messageOf(error)}. Paste the URL again.\n`);
        reader.prompt();
      }
    }
    signal.throwIfAborted();
    throw new UsageError('no URL was pasted', 'Paste the final URL from the browser.');
  } finally {
    signal.removeEventListener('abort', close);
    reader.close();
  }
}

function addressIn(line: string): URL {
  if (URL.canParse(line)) return new URL(line);
  throw new UsageError('not an address', 'Paste the complete URL, starting with http.');
}
