// The client that is tested: yours stands here.
const login = { username: 'gateway@sandbox.example', password: 'gateway-password' };
const key = { client_id: 'sandbox-client', client_secret: 'sandbox-secret' };

const form = (url, fields) => fetch(url, { method: 'POST', body: new URLSearchParams({ ...fields, ...key }) });

export async function postFlow(url, asset, value) {
  const { access_token } = await (await form(`${url}/oauth/token`, { grant_type: 'password', ...login })).json();
  const data = [{ timestamp: new Date().toISOString(), value }];
  const reply = await fetch(`${url}/v1/assets/${asset}/values`, {
    method: 'POST',
    headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ values: [{ key: 'flow', unit: { code: 'cubic_meter_per_hour' }, data }] }),
  });
  await form(`${url}/oauth/revoke`, { token: access_token });
  return reply.status;
}
