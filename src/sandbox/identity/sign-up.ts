import { type Answer, type Call, pageForm } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { Notice, User } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import { escaped, html } from './page.ts';

export interface SignUpContext {
  site: SiteModel;
  clock: SandboxClock;
  /** Where the confirmation message goes: the sandbox sends no mail. */
  notices: Notice[];
  makeToken(): string;
  webUrl(): string;
}

const SIGN_UP_PATH = '/app/id/sign_up';
const CONFIRM_PATH = '/app/id/confirm';
const EMAIL = /^[^\s@]{1,64}@[^\s@]{1,255}$/;

/** Platform 1: people sign up in the identity application and confirm their address by a message before they sign in. */
export function addSignUpEndpoints(router: Router, context: SignUpContext): void {
  const none = { auth: 'none' } as const;
  router.add('GET', SIGN_UP_PATH, () => html(200, FORM), none);
  router.add('POST', SIGN_UP_PATH, (call) => signUp(call, context), none);
  router.add('GET', CONFIRM_PATH, (call) => confirm(call, context), none);
}

const FORM = `<h2>Sign up</h2><form method="post" action="${SIGN_UP_PATH}">
<label>Name <input name="name" autofocus></label>
<label>E-mail <input name="email" type="email"></label>
<label>Password <input name="password" type="password"></label>
<button>Sign up</button></form>`;

function signUp(call: Call, context: SignUpContext): Answer {
  const { site, notices, clock } = context;
  const form = pageForm(call);
  const email = form.get('email') ?? '';
  const password = form.get('password') ?? '';
  const bad = (words: string) => html(400, `<p class="bad">${words}</p>${FORM}`);
  if (!EMAIL.test(email)) return bad('That is no e-mail address.');
  if (password.length < 8) return bad('The password has eight characters at least.');
  if (site.userByEmail(email)) return bad('There is an account of this address already.');
  const name = form.get('name')?.slice(0, 100);
  const user: User = {
    id: site.newId(),
    email,
    password,
    technical: false,
    confirmed: false,
    ...(name ? { name } : {}),
  };
  site.put('users', user);
  const link = `${context.webUrl()}${CONFIRM_PATH}?token=${context.makeToken()}`;
  notices.push({
    at: new Date(clock.wallMs()).toISOString(),
    contact: email,
    text: 'confirm your e-mail address',
    link,
  });
  return {
    ...html(
      200,
      `<p>A message was sent to <b>${escaped(email)}</b>: its link confirms the address.</p>
<p>The sandbox sends no mail: the message is in <code>GET /sandbox/notices</code>.</p>`,
    ),
    story: `${email} signs up and is sent a message`,
  };
}

function confirm(call: Call, { site, notices }: SignUpContext): Answer {
  const token = call.query.get('token') ?? '';
  // The link is known by its message, which a state file keeps as well.
  const sent = notices.find(({ link }) => token !== '' && link?.endsWith(`?token=${token}`));
  const user = site.userByEmail(sent?.contact ?? '');
  if (user?.confirmed !== false) return html(400, '<p class="bad">This link is unknown or was used.</p>');
  delete user.confirmed;
  return {
    ...html(
      200,
      '<p>The address is confirmed. <a href="/app/id/subscriptions/new">Make a connect subscription</a></p>',
    ),
    story: `${user.email} is confirmed`,
  };
}
