import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { PersonFile } from '../../../src/commands/person/person-file.ts';
import { hintOf } from '../../../src/platform/response-meanings.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { runVerb } from './verb-run.ts';

const { clientId, userEmail } = SANDBOX_CREDENTIALS;
let sandbox: Sandbox;
let folder: string;

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-hints-'));
});
afterAll(async () => {
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => sandbox.faults.clear());

const environment = () => ({ XDG_STATE_HOME: folder, PLATFORM_URL: sandbox.url, CLIENT_ID: clientId });

async function signIn(leftMs: number): Promise<void> {
  const tokens = sandbox.tokens.issue(sandbox.user(userEmail).id, 3, 'authorization_code');
  const place = { platformUrl: sandbox.url, identityUrl: sandbox.url, clientId };
  await new PersonFile({ XDG_STATE_HOME: folder }, place, 'me', systemClock).write({
    flow: 'pkce',
    accessToken: tokens.access_token,
    refreshToken: tokens.refresh_token,
    expiresWallMs: systemClock.wallMs() + leftMs,
  });
}

const list = () => runVerb(['permissions', 'ls', 'Asset/881', '--config', folder], environment());

describe('hints for a signed-in user', () => {
  it('mention the login command, but not the technical user, if the platform rejects the token', async () => {
    await signIn(600_000);
    sandbox.faults.add({ path: '/v2/*', status: 401 });
    const { status, stderr } = await list();
    expect(status).toBe(1);
    expect(stderr).toContain('responded 401');
    expect(stderr).toContain('tagferry login');
    expect(stderr).not.toMatch(/session show/);
  });

  it('mention the client application if it is unknown to the platform', async () => {
    await signIn(1);
    sandbox.faults.add({ path: '/*', status: 401, body: { error: 'invalid_client' } });
    const { status, stderr } = await list();
    expect(status).toBe(1);
    expect(stderr).toContain('CLIENT_ID');
    expect(stderr).not.toMatch(/TECHNICAL_|CLIENT_AUTH/);
  });

  it('never mention the technical user, regardless of the response', () => {
    for (const grant of ['authorization_code', 'refresh_token', 'revoke'] as const) {
      for (const error of ['invalid_client', 'invalid_grant', 'unauthorized_client', 'access_denied', undefined]) {
        for (const status of [400, 401, 403, 404]) {
          expect(hintOf({ grant, person: true }, error, status)).not.toMatch(/TECHNICAL_|CLIENT_AUTH|technical user/);
        }
      }
    }
    expect(hintOf({ grant: 'password' }, 'invalid_grant', 400)).toContain('TECHNICAL_PASSWORD');
  });
});
