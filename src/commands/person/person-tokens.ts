import type { Clock } from '../../base/clock.ts';
import { PlatformError } from '../../base/errors.ts';
import type { Lease, TokenSource } from '../../platform/client.ts';
import { type PersonClient, personRefreshRequest, personRevokeRequest } from '../../platform/grants.ts';
import type { HttpBoundary } from '../../platform/http-boundary.ts';
import { GrantError, processRevokeAnswer, processTokenAnswer, type Tokens } from '../../platform/response-meanings.ts';
import type { PersonFile, SignInFlow, StoredPerson } from './person-file.ts';

export interface PersonTokensOptions {
  file: PersonFile;
  boundary: Pick<HttpBoundary, 'send'>;
  /** {web_url} in the specification. */
  identityUrl: string;
  client(flow: SignInFlow): PersonClient;
  clock: Clock;
}

/**
 * A token that expires within this time is renewed before use, because a call over a slow link can take half a minute.
 */
const MARGIN_MS = 30_000;
/** Maximum lifetime of an access token. A longer lifetime means that the token was stored while the clock was wrong. */
const MAX_LIFE_MS = 24 * 3_600_000;

/**
 * Provides a user's stored tokens. Renews them before they expire or after a rejection, and stores new tokens before
 * use, so that valid tokens remain after a crash. Replaced tokens are revoked, unless the refresh token is unchanged,
 * because revocation would invalidate it (platform 3.1).
 */
export class PersonTokens implements TokenSource {
  readonly #options: PersonTokensOptions;
  readonly #rejected = new Set<string>();
  #renewal: Promise<StoredPerson> | undefined;

  constructor(options: PersonTokensOptions) {
    this.#options = options;
  }

  /** Throws `person.signed_out` if no user is signed in or the sign-in has expired. */
  async lease(): Promise<Lease> {
    const { accessToken } = await this.#usable();
    return {
      accessToken,
      responded: (status) => {
        if (status === 401) this.#rejected.add(accessToken);
        return undefined;
      },
      release: () => undefined,
    };
  }

  /**
   * Revokes (bearer form, platform 4.1) and deletes the tokens. Renews an expired token first, so that its refresh
   * token is revoked too.
   */
  async signOut(): Promise<'revoked' | 'ended already' | 'not signed in'> {
    const { file } = this.#options;
    if ((await file.read()) === undefined) return 'not signed in';
    let outcome: 'revoked' | 'ended already' = 'revoked';
    try {
      await this.#revoke(await this.#usable()).catch(async (error: unknown) => {
        if (!(error instanceof GrantError) || error.failure !== 'refused') throw error;
        const { accessToken } = (await file.read()) ?? { accessToken: '' };
        this.#rejected.add(accessToken);
        await this.#revoke(await this.#usable());
      });
    } catch (error) {
      if (!(error instanceof PlatformError) || error.code !== 'person.signed_out') throw error;
      outcome = 'ended already';
    }
    await file.remove();
    return outcome;
  }

  /** Stores the tokens of a new sign-in and revokes the previous ones. */
  async signIn(tokens: Tokens, flow: SignInFlow): Promise<void> {
    const { file } = this.#options;
    await file.locked(async () => {
      const before = await file.read().catch(() => undefined);
      const person = this.#stored(tokens, flow);
      await file.write(person);
      if (before) await this.#retire(before, person);
    });
  }

  async #usable(): Promise<StoredPerson> {
    const person = await this.#options.file.read();
    if (person === undefined) throw signedOut('not signed in');
    if (this.#isGood(person)) return person;
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = undefined;
    });
    return await this.#renewal;
  }

  #isGood(person: StoredPerson): boolean {
    const leftMs = person.expiresWallMs - this.#options.clock.wallMs();
    return leftMs > MARGIN_MS && leftMs <= MAX_LIFE_MS && !this.#rejected.has(person.accessToken);
  }

  async #renew(): Promise<StoredPerson> {
    const { file } = this.#options;
    return await file.locked(async () => {
      // Another process may have renewed the tokens in the meantime.
      const person = await file.read();
      if (person === undefined) throw signedOut('not signed in');
      if (this.#isGood(person)) return person;
      const next = await this.#refresh(person);
      await file.write(next);
      await this.#retire(person, next);
      return next;
    });
  }

  async #refresh(person: StoredPerson): Promise<StoredPerson> {
    const { boundary, identityUrl, client } = this.#options;
    if (person.refreshToken === undefined) throw signedOut('the sign-in has expired');
    const asked = personRefreshRequest(identityUrl, client(person.flow), person.refreshToken);
    const answer = await boundary.send(asked);
    try {
      return this.#stored(
        processTokenAnswer(answer, { grant: 'refresh_token', person: true, refreshToken: person.refreshToken }),
        person.flow,
      );
    } catch (error) {
      if (!(error instanceof GrantError) || error.oauthError !== 'invalid_grant') throw error;
      throw signedOut('the sign-in has expired (it lasts at most 24 hours)', error);
    }
  }

  /** Best effort: tokens that are not revoked expire within eleven minutes. */
  async #retire(before: StoredPerson, next: StoredPerson): Promise<void> {
    const dead = this.#rejected.has(before.accessToken) || before.expiresWallMs <= this.#options.clock.wallMs();
    if (dead || before.accessToken === next.accessToken || before.refreshToken === next.refreshToken) return;
    await this.#revoke(before).catch(() => undefined);
  }

  async #revoke(person: StoredPerson): Promise<void> {
    const { boundary, identityUrl, client } = this.#options;
    const asked = personRevokeRequest(identityUrl, client(person.flow), person.accessToken);
    processRevokeAnswer(await boundary.send(asked), { grant: 'revoke', person: true });
  }

  #stored(tokens: Tokens, flow: SignInFlow): StoredPerson {
    const { accessToken, refreshToken, expiresInMs } = tokens;
    return { flow, accessToken, refreshToken, expiresWallMs: this.#options.clock.wallMs() + expiresInMs };
  }
}

function signedOut(message: string, cause?: unknown): PlatformError {
  return new PlatformError(message, { code: 'person.signed_out', hint: 'Run `tagferry login`.', cause });
}
