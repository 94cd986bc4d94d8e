import { createHash } from 'node:crypto';
import type { Observed } from './observed.ts';
import { Remembered, type Rule } from './rule.ts';

const isExchange = (one: Observed) => one.isToken && one.form.get('grant_type') === 'authorization_code';
/** The code with which a browser is sent back to the client. */
const codeOf = (one: Observed) => (one.isSignIn ? (one.redirect?.searchParams.get('code') ?? undefined) : undefined);

/** What a client brings a person's sign-in by, and what it makes of how the browser comes back (platform 5.3 and 5.4). */
export const SIGN_IN_RULES: readonly Rule[] = [
  {
    id: 'state',
    section: '5.3',
    requirement: 'a sign-in carries a state of its own',
    begin: (tally) => {
      const seen = new Remembered<true>();
      // A page may be opened again: a state is used up with the code that came beside it.
      return {
        see: (one) => {
          const code = codeOf(one);
          if (code === undefined && !(one.isSignIn && one.query.get('response_type') === 'code')) return;
          const state = (code === undefined ? one.query : one.form).get('state') ?? '';
          if (state === '') tally.broken('a sign-in without state');
          else if (code === undefined && seen.get(state) !== undefined)
            tally.broken('two sign-ins with the same state');
          else tally.held();
          if (code !== undefined && !isForeign(one)) seen.set(state, true);
        },
      };
    },
  },
  {
    id: 'foreign-state',
    section: '5.3',
    requirement: 'a code that comes with another state is left alone',
    begin: (tally) => {
      const foreign = new Remembered<true>();
      return {
        see: (one) => {
          const code = codeOf(one);
          if (code !== undefined && isForeign(one)) foreign.set(code, true);
          if (!isExchange(one)) return;
          if (foreign.delete(one.form.get('code') ?? '')) {
            tally.broken('a code is exchanged that came with a state of somebody else');
          } else if (foreign.size > 0) tally.held();
        },
      };
    },
  },
  {
    id: 'pkce',
    section: '5.4',
    requirement: 'a code is exchanged with a secret, or with a verifier of its own',
    begin: (tally) => {
      const seen = new Remembered<true>();
      const challenges = new Remembered<string | null>();
      return {
        see: (one) => {
          const code = codeOf(one);
          if (code !== undefined) challenges.set(code, one.form.get('code_challenge'));
          if (!isExchange(one)) return;
          const verifier = one.form.get('code_verifier');
          const challenge = challenges.get(one.form.get('code') ?? '');
          const why =
            verifier === null
              ? withoutVerifier(one, challenge)
              : seen.get(verifier) !== undefined
                ? 'two sign-ins with the same code verifier'
                : wrongVerifier(verifier, challenge);
          if (verifier !== null) seen.set(verifier, true);
          if (why === undefined) tally.held();
          else tally.broken(why);
        },
      };
    },
  },
];

/** Whether the browser was sent back with another state than it came with. */
function isForeign({ form, redirect }: Observed): boolean {
  return redirect !== undefined && redirect.searchParams.get('state') !== form.get('state');
}

function withoutVerifier(one: Observed, challenge: string | null | undefined): string | undefined {
  if (typeof challenge === 'string')
    return 'a code that was asked for with a challenge is exchanged without its verifier';
  return one.hasSecret ? undefined : 'a code is exchanged with neither a secret nor a verifier';
}

/** `challenge`: null where the sign-in had none; undefined where nobody saw it. */
function wrongVerifier(verifier: string, challenge: string | null | undefined): string | undefined {
  if (!/^[\w.~-]{43,128}$/.test(verifier)) return 'a code verifier that is none';
  if (challenge === undefined) return undefined;
  const made = createHash('sha256').update(verifier).digest('base64url');
  const sent = challenge?.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  return made === sent ? undefined : 'a code verifier that its challenge was not made from';
}
