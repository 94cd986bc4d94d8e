import { type Answer, type Call, pageForm } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { User } from '../site/records.ts';
import type { Stage } from '../stage.ts';
import { sameText } from '../tokens/client-auth.ts';
import { escaped, html } from './page.ts';

const SIGN_UP_PATH = '/app/id/sign_up';
const CONFIRM_PATH = '/app/id/confirm';
const EMAIL = /^[^\s@]{1,64}@[^\s@]{1,255}$/;

/**
 * Sign-up in the identity application (platform 1). People must confirm their e-mail address before they can sign in.
 */
export function addSignUpEndpoints(router: Router, stage: Stage): void {
  const none = { auth: 'none' } as const;
  router.add('GET', SIGN_UP_PATH, () => html(200, FORM), none);
  router.add('POST', SIGN_UP_PATH, (call) => signUp(call, stage), none);
  router.add('GET', CONFIRM_PATH, (call) => confirm(call, stage), none);
  router.add('GET', SUBSCRIBE_PATH, () => html(200, SUBSCRIBE_FORM), none);
  router.add('POST', SUBSCRIBE_PATH, (call) => subscribe(call, stage), none);
}

const FORM = `<h2>Sign up</h2><form method="post" action="${SIGN_UP_PATH}">
<label>Name <input name="name" autofocus></label>
<label>E-mail <input name="email" type="email"></label>
<label>Password <input name="password" type="password"></label>
<button>Sign up</button></form>`;

function signUp(call: Call, stage: Stage): Answer {
  const { site } = stage;
  const form = pageForm(call);
  const email = form.get('email') ?? '';
  const password = form.get('password') ?? '';
  const bad = (words: string) => html(400, `<p class="bad">${words}</p>${FORM}`);
  if (!EMAIL.test(email)) return bad('Enter an e-mail address.');
  if (password.length < 8) return bad('The password must have at least eight characters.');
  if (site.userByEmail(email)) return bad('An account with this e-mail address already exists.');
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
  const link = `${stage.identityUrl}${CONFIRM_PATH}?token=${stage.makeToken()}`;
  stage.notify({ contact: email, text: 'confirm your e-mail address', link });
  return {
    ...html(
      200,
      `<p>A message with a confirmation link was sent to <b>${escaped(email)}</b>.</p>
<p>The sandbox does not send e-mail. Read the message with <code>GET /sandbox/notices</code>.</p>`,
    ),
    story: `${email} signed up, confirmation message created`,
  };
}

function confirm(call: Call, { site, notices }: Stage): Answer {
  const token = call.query.get('token') ?? '';
  // The token is recorded only in the message.
  const sent = notices.find(({ link }) => token !== '' && link?.endsWith(`?token=${token}`));
  const user = site.userByEmail(sent?.contact ?? '');
  if (user?.confirmed !== false) return html(400, '<p class="bad">This link is unknown or was already used.</p>');
  delete user.confirmed;
  return {
    ...html(
      200,
      '<p>E-mail address confirmed. <a href="/app/id/subscriptions/new">Create a connect subscription</a></p>',
    ),
    story: `${user.email} confirmed`,
  };
}

const SUBSCRIBE_PATH = '/app/id/subscriptions/new';

const SUBSCRIBE_FORM = `<h2>Connect subscription</h2><form method="post" action="${SUBSCRIBE_PATH}">
<label>E-mail <input name="username" type="email" autofocus></label>
<label>Password <input name="password" type="password"></label>
<label>Name of the application <input name="name"></label>
<label>Redirect addresses, one per line <textarea name="redirect_uris"></textarea></label>
<button>Subscribe</button></form>`;

/**
 * Creates a connect subscription (platform 1, 2.3 and 5.1): a client application, an API key with its secret, and a
 * technical user. The form exists only in the sandbox and displays the key, secret and password once.
 */
function subscribe(call: Call, stage: Stage): Answer {
  const { site } = stage;
  const form = pageForm(call);
  const person = site.userByEmail(form.get('username') ?? '');
  const bad = (status: number, words: string) => html(status, `<p class="bad">${words}</p>${SUBSCRIBE_FORM}`);
  if (!person || person.technical || !sameText(person.password, form.get('password') ?? '')) {
    return bad(401, 'Incorrect e-mail address or password.');
  }
  if (person.confirmed === false) return bad(403, 'Confirm your e-mail address first.');
  const name = (form.get('name') ?? '').trim().slice(0, 100);
  if (name === '') return bad(400, 'Enter a name for the application.');
  if (site.all('client_applications').some((one) => one.name === name))
    return bad(400, 'Another application already has this name.');
  const redirects = (form.get('redirect_uris') ?? '').split(/\s+/).filter((uri) => uri !== '');
  if (redirects.length > 20 || redirects.some((uri) => !URL.canParse(uri))) {
    return bad(400, 'Enter at most 20 valid redirect addresses.');
  }
  const user = site.newId();
  const email = `technical-${user}@sandbox.example`;
  const password = stage.makeToken();
  site.put('users', { id: user, email, password, technical: true });
  const id = site.newId();
  site.put('client_applications', {
    id,
    name,
    technical_user: user,
    contact: person.email,
    // On the platform, the support team approves and enables the web flow (platform 5.3).
    code_flow: redirects.length > 0,
    redirect_uris: redirects,
  });
  const clientId = stage.makeToken().slice(0, 24);
  const secret = stage.makeToken();
  site.put('api_keys', { id, client_application: id, client_id: clientId, client_secret: secret });
  const row = (label: string, id: string, text: string) =>
    `<dt>${label}</dt><dd><code id="${id}">${escaped(text)}</code></dd>`;
  return {
    ...html(
      201,
      `<h2>${escaped(name)}</h2><p>Save these credentials. They are not shown again.</p><dl>
${row('API key (client id)', 'client_id', clientId)}${row('API secret', 'client_secret', secret)}
${row('Technical user', 'technical_username', email)}${row('Password', 'technical_password', password)}</dl>`,
    ),
    story: `${person.email} created the connect subscription ${name}`,
  };
}
