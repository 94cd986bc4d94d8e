import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PersonFile, personStateFolder } from '../../../src/commands/person/person-file.ts';
import { PersonTokens } from '../../../src/commands/person/person-tokens.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';

const { clientId, userEmail } = SANDBOX_CREDENTIALS;
let sandbox: Sandbox;
let boundary: HttpBoundary;
let folder: string;
/** Offset of this machine's clock from the sandbox clock, in milliseconds. */
let offMs = 0;
const clock: Clock = { ...systemClock, wallMs: () => systemClock.wallMs() + offMs };

beforeEach(async () => {
  offMs = 0;
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-tokens-'));
  boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 8 }),
    clock,
    userAgent: 'tagferry/test',
  });
});
afterEach(async () => {
  await boundary.close();
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

const file = () =>
  new PersonFile(
    { XDG_STATE_HOME: folder },
    { platformUrl: sandbox.url, identityUrl: sandbox.url, clientId },
    'me',
    clock,
  );

/** Returns tokens as used by one command. Several instances behave like separate processes. */
const tokensOf = (at: PersonFile = file()) =>
  new PersonTokens({ file: at, boundary, identityUrl: sandbox.url, client: () => ({ clientId }), clock });

async function signedIn(): Promise<PersonTokens> {
  const { access_token, refresh_token } = sandbox.tokens.issue(sandbox.user(userEmail).id, 3, 'authorization_code');
  const tokens = tokensOf();
  await tokens.signIn({ accessToken: access_token, refreshToken: refresh_token, expiresInMs: 660_000 }, 'pkce');
  return tokens;
}

const states = () => sandbox.tokens.list().map(({ grant, state, refresh }) => `${grant} ${state} ${refresh}`);

describe('user tokens', () => {
  it('are used until shortly before they expire', async () => {
    const tokens = await signedIn();
    const [first, second] = [await tokens.lease(), await tokens.lease()];
    expect(first.accessToken).toBe(second.accessToken);
    expect(sandbox.tokens.counts().issued).toBe(1);
  });

  it('are renewed before they expire, and revoked after the new tokens are on disk', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    const { accessToken } = await tokens.lease();
    expect((await file().read())!.accessToken).toBe(accessToken);
    expect(sandbox.tokens.counts()).toMatchObject({ issued: 2, alive: 1 });
    expect(sandbox.tokens.check(accessToken)).toBeTypeOf('object');
  });

  it('are not revoked if the refresh token is unchanged', async () => {
    sandbox.tokens.configure({ rotateRefreshTokens: false });
    const tokens = await signedIn();
    offMs = 635_000;
    await tokens.lease();
    offMs = 2 * 635_000;
    await tokens.lease();
    expect(sandbox.tokens.counts().issued).toBe(3);
    expect(states().at(-1)).toBe('refresh_token valid valid');
  });

  it('are renewed once for concurrent callers, in one process and in several', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    const others = Array.from({ length: 10 }, () => tokensOf());
    const leases = await Promise.all([...others, tokens, tokens, tokens].map((one) => one.lease()));
    expect(new Set(leases.map((lease) => lease.accessToken)).size).toBe(1);
    expect(sandbox.tokens.counts().issued).toBe(2);
  });

  it('are replaced if the platform rejects one, regardless of its lifetime', async () => {
    const tokens = await signedIn();
    const lease = await tokens.lease();
    sandbox.tokens.expireAll(false);
    lease.responded(401);
    expect((await tokens.lease()).accessToken).not.toBe(lease.accessToken);
  });

  it('remain valid if the clock is set back by a year or ahead by a day', async () => {
    const tokens = await signedIn();
    for (const jumpMs of [-365 * 86_400_000, 86_400_000, 0]) {
      offMs = jumpMs;
      const { issued } = sandbox.tokens.counts();
      expect(sandbox.tokens.check((await tokens.lease()).accessToken)).toBeTypeOf('object');
      // The expiry time is unknown after a clock change, so a token that appears to be valid for a year is renewed.
      expect(sandbox.tokens.counts().issued).toBe(issued + 1);
    }
  });

  it('are kept if the platform is unavailable during a renewal', async () => {
    const tokens = await signedIn();
    const before = await file().read();
    offMs = 635_000;
    await sandbox.goOffline('refuse');
    await expect(tokens.lease()).rejects.toMatchObject({ code: 'platform.connection_refused', retryable: true });
    expect(await file().read()).toEqual(before);
    await sandbox.goOnline();
    expect((await tokens.lease()).accessToken).not.toBe(before!.accessToken);
  });

  it('require a new sign-in if the response to a refresh is lost after a rotation', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    sandbox.faults.add({ path: '/app/id/oauth/token', drop: 'after', times: 1 });
    await expect(tokens.lease()).rejects.toMatchObject({ retryable: true });
    await expect(tokens.lease()).rejects.toMatchObject({ code: 'person.signed_out' });
  });

  it('leave no temporary file, and are stored as the XDG specification requires', async () => {
    await signedIn();
    const names = readdirSync(join(folder, 'tagferry/people'));
    expect(names.filter((name) => !/^me-[0-9a-f]{12}\.json(\.lock)?$/.test(name))).toEqual([]);
    expect(personStateFolder({ HOME: '/home/anna' })).toBe('/home/anna/.local/state/tagferry');
    expect(personStateFolder({ HOME: '/home/anna', XDG_STATE_HOME: 'relative' })).toBe(
      '/home/anna/.local/state/tagferry',
    );
  });

  it('are not used for any other platform or client', async () => {
    await signedIn();
    const settings = { platformUrl: sandbox.url, identityUrl: sandbox.url, clientId };
    for (const other of [
      { platformUrl: 'https://x.example' },
      { identityUrl: 'https://x.example' },
      { clientId: 'x' },
    ]) {
      const elsewhere = new PersonFile({ XDG_STATE_HOME: folder }, { ...settings, ...other }, 'me', clock);
      expect(await elsewhere.read()).toBeUndefined();
    }
  });
});
