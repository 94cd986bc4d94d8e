import { type Answer, type Call, pageForm } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { SiteModel } from '../site/site-model.ts';
import { sameText } from '../tokens/client-auth.ts';
import { escaped, html } from './page.ts';

const PATH = '/app/id/subscriptions/new';

/**
 * Platform 1, 2.3 and 5.1: a connect subscription is made in the identity application, and with it a client application, an API
 * key with its secret, and a technical user. The form is the sandbox's own; key, secret and password are shown once.
 */
export function addSubscriptionPages(router: Router, site: SiteModel, makeToken: () => string): void {
  const none = { auth: 'none' } as const;
  router.add('GET', PATH, () => html(200, FORM), none);
  router.add('POST', PATH, (call) => subscribe(call, site, makeToken), none);
}

const FORM = `<h2>Connect subscription</h2><form method="post" action="${PATH}">
<label>E-mail <input name="username" type="email" autofocus></label>
<label>Password <input name="password" type="password"></label>
<label>Name of the application <input name="name"></label>
<label>Redirect addresses, one a line <textarea name="redirect_uris"></textarea></label>
<button>Subscribe</button></form>`;

function subscribe(call: Call, site: SiteModel, makeToken: () => string): Answer {
  const form = pageForm(call);
  const person = site.userByEmail(form.get('username') ?? '');
  const bad = (status: number, words: string) => html(status, `<p class="bad">${words}</p>${FORM}`);
  if (!person || person.technical || !sameText(person.password, form.get('password') ?? '')) {
    return bad(401, 'E-mail or password is wrong.');
  }
  if (person.confirmed === false) return bad(403, 'Confirm your e-mail address first.');
  const name = (form.get('name') ?? '').trim().slice(0, 100);
  if (name === '') return bad(400, 'The application needs a name.');
  if (site.all('client_applications').some((one) => one.name === name)) return bad(400, 'That name is taken.');
  const redirects = (form.get('redirect_uris') ?? '').split(/\s+/).filter((uri) => uri !== '');
  if (redirects.length > 20 || redirects.some((uri) => !URL.canParse(uri))) {
    return bad(400, 'A redirect address is none, or there are more than 20.');
  }
  const user = site.newId();
  const email = `technical-${user}@sandbox.example`;
  const password = makeToken();
  site.put('users', { id: user, email, password, technical: true });
  const id = site.newId();
  site.put('client_applications', {
    id,
    name,
    technical_user: user,
    contact: person.email,
    // Platform 5.3: "approved and enabled by support", who is not at hand here.
    code_flow: redirects.length > 0,
    redirect_uris: redirects,
  });
  const clientId = makeToken().slice(0, 24);
  const secret = makeToken();
  site.put('api_keys', { id, client_application: id, client_id: clientId, client_secret: secret });
  const row = (label: string, id: string, text: string) =>
    `<dt>${label}</dt><dd><code id="${id}">${escaped(text)}</code></dd>`;
  return {
    ...html(
      201,
      `<h2>${escaped(name)}</h2><p>Keep these: they are not shown again.</p><dl>
${row('API key (client id)', 'client_id', clientId)}${row('API secret', 'client_secret', secret)}
${row('Technical user', 'technical_username', email)}${row('Its password', 'technical_password', password)}</dl>`,
    ),
    story: `${person.email} makes the connect subscription ${name}`,
  };
}
