import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { Redactor } from '../../src/base/redactor.ts';
import { PersonFile, personStateFolder } from '../../src/commands/person/person-file.ts';
import { PersonTokens } from '../../src/commands/person/person-tokens.ts';
import { createDispatcher } from '../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../src/platform/http-boundary.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';

const { clientId, userEmail } = SANDBOX_CREDENTIALS;
let sandbox: Sandbox;
let boundary: HttpBoundary;
let folder: string;
/** How far this machine's clock is from the sandbox's. */
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

/** A verb's view of the tokens; each is as good as a process of its own. */
const tokensOf = (at: PersonFile = file()) =>
  new PersonTokens({ file: at, boundary, identityUrl: sandbox.url, client: () => ({ clientId }), clock });

async function signedIn(): Promise<PersonTokens> {
  const { access_token, refresh_token } = sandbox.tokens.issue(sandbox.user(userEmail).id, 3, 'authorization_code');
  const tokens = tokensOf();
  await tokens.signIn({ accessToken: access_token, refreshToken: refresh_token, expiresInMs: 660_000 }, 'pkce');
  return tokens;
}

const states = () => sandbox.tokens.list().map(({ grant, state, refresh }) => `${grant} ${state} ${refresh}`);

describe("a person's tokens", () => {
  it('are used as they are while they last', async () => {
    const tokens = await signedIn();
    const [first, second] = [await tokens.lease(), await tokens.lease()];
    expect(first.accessToken).toBe(second.accessToken);
    expect(sandbox.tokens.counts().issued).toBe(1);
  });

  it('are renewed before they end, and what was replaced is revoked once its successor is on disk', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    const { accessToken } = await tokens.lease();
    expect((await file().read())!.accessToken).toBe(accessToken);
    expect(sandbox.tokens.counts()).toMatchObject({ issued: 2, alive: 1 });
    expect(sandbox.tokens.check(accessToken)).toBeTypeOf('object');
  });

  it('are not revoked where the refresh token stayed the same, for that would end it', async () => {
    sandbox.tokens.configure({ rotateRefreshTokens: false });
    const tokens = await signedIn();
    offMs = 635_000;
    await tokens.lease();
    offMs = 2 * 635_000;
    await tokens.lease();
    expect(sandbox.tokens.counts().issued).toBe(3);
    expect(states().at(-1)).toBe('refresh_token valid valid');
  });

  it('are renewed once for any number of callers, in one process and in several', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    const others = Array.from({ length: 10 }, () => tokensOf());
    const leases = await Promise.all([...others, tokens, tokens, tokens].map((one) => one.lease()));
    expect(new Set(leases.map((lease) => lease.accessToken)).size).toBe(1);
    expect(sandbox.tokens.counts().issued).toBe(2);
  });

  it('are replaced where the platform refused one, however long it claims to last', async () => {
    const tokens = await signedIn();
    const lease = await tokens.lease();
    sandbox.tokens.expireAll(false);
    lease.refused();
    expect((await tokens.lease()).accessToken).not.toBe(lease.accessToken);
  });

  it('survive a clock that is set back a year or ahead a day', async () => {
    const tokens = await signedIn();
    for (const jumpMs of [-365 * 86_400_000, 86_400_000, 0]) {
      offMs = jumpMs;
      const { issued } = sandbox.tokens.counts();
      expect(sandbox.tokens.check((await tokens.lease()).accessToken)).toBeTypeOf('object');
      // When it ends is not known any more: a token that claims to last a year is not waited for.
      expect(sandbox.tokens.counts().issued).toBe(issued + 1);
    }
  });

  it('are kept where the platform is away during a renewal', async () => {
    const tokens = await signedIn();
    const before = await file().read();
    offMs = 635_000;
    await sandbox.goOffline('refuse');
    await expect(tokens.lease()).rejects.toMatchObject({ code: 'platform.connection_refused', retryable: true });
    expect(await file().read()).toEqual(before);
    await sandbox.goOnline();
    expect((await tokens.lease()).accessToken).not.toBe(before!.accessToken);
  });

  it('have ended, and say so, where the answer to a refresh was lost after the platform had rotated', async () => {
    const tokens = await signedIn();
    offMs = 635_000;
    sandbox.faults.add({ path: '/app/id/oauth/token', drop: 'after', times: 1 });
    await expect(tokens.lease()).rejects.toMatchObject({ retryable: true });
    await expect(tokens.lease()).rejects.toMatchObject({ code: 'person.signed_out' });
  });

  it('leave no temporary file, and stand where the XDG specification says', async () => {
    await signedIn();
    const names = readdirSync(join(folder, 'tagferry/people'));
    expect(names.filter((name) => !/^me-[0-9a-f]{12}\.json(\.lock)?$/.test(name))).toEqual([]);
    expect(personStateFolder({ HOME: '/home/anna' })).toBe('/home/anna/.local/state/tagferry');
    expect(personStateFolder({ HOME: '/home/anna', XDG_STATE_HOME: 'relative' })).toBe(
      '/home/anna/.local/state/tagferry',
    );
  });

  it('are shown to no other platform and no other client than those that gave them', async () => {
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
