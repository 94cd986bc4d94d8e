/** What is sent to a token endpoint, whole: address, header, form and bounds, and which of it may be repeated nowhere. */
import { describe, expect, it } from 'vitest';
import { formRequest } from '../../src/platform/grants/form-request.ts';
import {
  beginSignIn,
  carriesState,
  challengeOf,
  codeGrantRequest,
  codeOfRedirect,
  personRefreshRequest,
  personRevokeRequest,
  type SignIn,
} from '../../src/platform/grants/person.ts';
import { passwordGrantRequest, refreshGrantRequest, revokeRequest } from '../../src/platform/grants/technical-user.ts';
import type { HttpRequest } from '../../src/platform/http-boundary.ts';

const BASE = 'https://api.example.com/base//';
const WEB = 'https://web.example.com/';
const REDIRECT = 'http://127.0.0.1:4711/back?a=b';
const USER = { username: 'gateway@example.com', password: 'p&ss=wörd +' };
const KEY = { clientId: 'the key', clientSecret: 's:ü+%' };
const BASIC = Buffer.from('the key:s:ü+%').toString('base64');

/** As it is expected of every request. */
function whole(url: string, form: Record<string, string>, sent: string[], authorization?: string) {
  return {
    url,
    form: Object.entries(form),
    secrets: sent,
    method: 'POST',
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      ...(authorization === undefined ? {} : { authorization }),
    },
    deadlineMs: 20_000,
    maxAnswerBytes: 65_536,
  };
}
const shown = ({ url, body, ...others }: HttpRequest) => ({
  url: url.href,
  form: [...new URLSearchParams(String(body))],
  ...others,
});

describe('a request of the technical user', () => {
  const token = 'https://api.example.com/base/oauth/token';
  const revoke = 'https://api.example.com/base/oauth/revoke';
  const login = { grant_type: 'password', ...USER };
  const refresh = { grant_type: 'refresh_token', refresh_token: 'r1' };

  it('has key and secret in the header where CLIENT_AUTH is basic', () => {
    const client = { ...KEY, clientAuth: 'basic' } as const;
    const header = `Basic ${BASIC}`;
    const ours = [BASIC, KEY.clientSecret];
    expect(shown(passwordGrantRequest(BASE, client, USER))).toEqual(
      whole(token, login, [USER.password, ...ours], header),
    );
    expect(shown(refreshGrantRequest(BASE, client, 'r1'))).toEqual(whole(token, refresh, ['r1', ...ours], header));
    expect(shown(revokeRequest(BASE, client, 'a1'))).toEqual(whole(revoke, { token: 'a1' }, ['a1', ...ours], header));
  });

  it('has key and secret in the form where CLIENT_AUTH is body', () => {
    const client = { ...KEY, clientAuth: 'body' } as const;
    const ours = { client_id: KEY.clientId, client_secret: KEY.clientSecret };
    expect(shown(passwordGrantRequest(BASE, client, USER))).toEqual(
      whole(token, { ...login, ...ours }, [USER.password, KEY.clientSecret]),
    );
    expect(shown(refreshGrantRequest(BASE, client, 'r1'))).toEqual(
      whole(token, { ...refresh, ...ours }, ['r1', KEY.clientSecret]),
    );
    expect(shown(revokeRequest(BASE, client, 'a1'))).toEqual(
      whole(revoke, { token: 'a1', ...ours }, [KEY.clientSecret, 'a1']),
    );
  });

  it.each(['basic', 'body'] as const)(
    'has the key alone where there is no secret, whatever CLIENT_AUTH is: %s',
    (clientAuth) => {
      const client = { clientId: KEY.clientId, clientAuth };
      const ours = { client_id: KEY.clientId };
      expect(shown(passwordGrantRequest(BASE, client, USER))).toEqual(
        whole(token, { ...login, ...ours }, [USER.password]),
      );
      expect(shown(refreshGrantRequest(BASE, client, 'r1'))).toEqual(whole(token, { ...refresh, ...ours }, ['r1']));
      expect(shown(revokeRequest(BASE, client, 'a1'))).toEqual(whole(revoke, { token: 'a1', ...ours }, ['a1']));
    },
  );
});

describe('a request of a person', () => {
  const token = 'https://web.example.com/app/id/oauth/token';
  const revoke = 'https://web.example.com/app/id/oauth/revoke';
  const signIn = (codeVerifier?: string): SignIn => ({
    address: new URL(WEB),
    state: 'state',
    redirectUri: REDIRECT,
    codeVerifier,
  });
  const code = { grant_type: 'authorization_code', code: 'c1', redirect_uri: REDIRECT };
  const refresh = { grant_type: 'refresh_token', refresh_token: 'r1' };

  it('with PKCE names the client, and proves by the verifier', () => {
    const client = { clientId: KEY.clientId };
    const ours = { client_id: KEY.clientId };
    expect(shown(codeGrantRequest(WEB, client, signIn('verifier'), 'c1'))).toEqual(
      whole(token, { ...code, code_verifier: 'verifier', ...ours }, ['c1', 'verifier']),
    );
    expect(shown(personRefreshRequest(WEB, client, 'r1'))).toEqual(whole(token, { ...refresh, ...ours }, ['r1']));
    expect(shown(personRevokeRequest(WEB, client, 'a1'))).toEqual(
      whole(revoke, { token: 'a1', ...ours }, ['a1'], 'Bearer a1'),
    );
  });

  it('with a secret has it in the form, but for a revocation', () => {
    const ours = { client_id: KEY.clientId, client_secret: KEY.clientSecret };
    expect(shown(codeGrantRequest(WEB, KEY, signIn(), 'c1'))).toEqual(
      whole(token, { ...code, ...ours }, [KEY.clientSecret, 'c1']),
    );
    expect(shown(personRefreshRequest(WEB, KEY, 'r1'))).toEqual(
      whole(token, { ...refresh, ...ours }, ['r1', KEY.clientSecret]),
    );
    expect(shown(personRevokeRequest(WEB, KEY, 'a1'))).toEqual(whole(revoke, { token: 'a1' }, ['a1'], 'Bearer a1'));
  });
});

describe('secrets of a request', () => {
  it('are those of the form and of the header, whatever the header is', () => {
    const url = new URL('http://platform');
    const sent = (form: Record<string, string>, authorization?: string) =>
      formRequest(url, new URLSearchParams(form), authorization === undefined ? {} : { authorization }).secrets;
    const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
    const secrets = {
      code_verifier: 'v',
      token: 't',
      code: 'c',
      client_secret: 's',
      refresh_token: 'r',
      password: 'p',
    };
    expect(sent({ ...secrets, username: 'u', grant_type: 'g' })).toEqual(['p', 'r', 's', 'c', 'v', 't']);
    expect(sent({}, 'Bearer id:b')).toContain('id:b');
    expect(sent({ password: '' })).toEqual([]);
    expect(sent({}, basic('id'))).toEqual([basic('id').slice(6)]);
    expect(sent({}, 'Negotiate')).toEqual([]);
  });
});

describe('the sign-in of a person', () => {
  it('goes to the identity application with a state of its own, and with PKCE a challenge', () => {
    const pkce = beginSignIn(WEB, { clientId: KEY.clientId }, REDIRECT);
    expect(pkce.address.origin + pkce.address.pathname).toBe('https://web.example.com/app/id/sign_in');
    const common = [
      ['response_type', 'code'],
      ['client_id', KEY.clientId],
      ['redirect_uri', REDIRECT],
    ];
    expect([...pkce.address.searchParams]).toEqual([
      ...common,
      ['state', pkce.state],
      ['code_challenge', challengeOf(pkce.codeVerifier!)],
      ['code_challenge_method', 'S256'],
    ]);
    // As much chance as a key has.
    expect([pkce.state, pkce.codeVerifier]).toEqual([
      expect.stringMatching(/^[\w-]{43}$/),
      expect.stringMatching(/^[\w-]{86}$/),
    ]);
    const web = beginSignIn(WEB, KEY, REDIRECT);
    expect([...web.address.searchParams]).toEqual([...common, ['state', web.state]]);
    expect([web.redirectUri, web.codeVerifier, pkce.redirectUri]).toEqual([REDIRECT, undefined, REDIRECT]);
    expect(new Set([web.state, pkce.state, beginSignIn(WEB, KEY, REDIRECT).state]).size).toBe(3);
  });

  const signIn: SignIn = { address: new URL(WEB), state: 'mine', redirectUri: REDIRECT, codeVerifier: undefined };
  const back = (query: Record<string, string>) => new URL(`${REDIRECT}&${new URLSearchParams(query)}`);

  it('is answered by a redirect with its state, and by no other', () => {
    const states = ['mine', 'mine ', 'min', 'other', ''];
    expect(states.map((state) => carriesState(back({ state }), signIn))).toEqual([true, false, false, false, false]);
    expect([carriesState(back({}), signIn), carriesState(back({}), { state: '' })]).toEqual([false, true]);
    expect(codeOfRedirect(back({ state: 'mine', code: 'c1' }), signIn)).toBe('c1');
  });

  const NOT_OURS = {
    message: 'the redirect does not carry the state of this sign-in',
    hint: 'Start `tagferry login` again and use its address.',
  };
  const refusal = (words: string) => ({
    message: `the sign-in was refused: ${words}`,
    hint: 'Sign in again, with an account that may use this application.',
  });
  const NO_CODE = {
    message: 'the redirect carries no code',
    hint: 'Paste the whole address that the browser was sent to.',
  };
  it.each([
    ['of another sign-in', { state: 'other', code: 'c1', error: 'access_denied' }, NOT_OURS],
    ['without a state', { code: 'c1' }, NOT_OURS],
    ['that says no', { state: 'mine', code: 'c1', error: 'access_denied' }, refusal('access_denied')],
    [
      'that says why not',
      { state: 'mine', error: 'access_denied', error_description: 'by\nwhom' },
      refusal('access_denied by whom'),
    ],
    [
      'that says more than anyone reads',
      { state: 'mine', error: 'e', error_description: 'x'.repeat(500) },
      refusal(`e ${'x'.repeat(198)}`),
    ],
    ['that says an empty no', { state: 'mine', error: '', code: 'c1' }, refusal('')],
    ['without a code', { state: 'mine' }, NO_CODE],
    ['with an empty code', { state: 'mine', code: '' }, NO_CODE],
  ] as [string, Record<string, string>, object][])('fails by a redirect %s', (_, query, error) => {
    expect(() => codeOfRedirect(back(query), signIn)).toThrow(
      expect.objectContaining({ code: 'platform.sign_in_redirect', retryable: false, ...error }),
    );
  });
});
