import type { Clock } from '../../base/clock.ts';
import { PlatformError } from '../../base/errors.ts';
import { GrantError } from '../../platform/grants/grant-error.ts';
import {
  type PersonClient,
  personRefreshRequest,
  personRevokeRequest,
  processPersonAnswer,
  processPersonRevocation,
} from '../../platform/grants/person.ts';
import type { Tokens } from '../../platform/grants/token-answer.ts';
import type { HttpBoundary } from '../../platform/http-boundary.ts';
import type { Lease, TokenSource } from '../../platform/token-source.ts';
import type { PersonFile, StoredPerson } from './person-file.ts';
import type { SignInFlow } from './person-settings.ts';

export interface PersonTokensOptions {
  file: PersonFile;
  boundary: Pick<HttpBoundary, 'send'>;
  /** The spec's {web_url}. */
  identityUrl: string;
  client(flow: SignInFlow): PersonClient;
  clock: Clock;
}

/** A token that ends within this time is renewed before it is used: a call may take a slow link half a minute. */
const MARGIN_MS = 30_000;
/** No access token lives longer; what claims to is from a clock that was set. */
const MAX_LIFE_MS = 24 * 3_600_000;

/**
 * A signed-in person's tokens for the client: taken from the file, renewed by refresh when they are about to end or were
 * refused, and written back before they are used, so that a crash after a rotation leaves the tokens that work. What a
 * renewal replaced is revoked, but not where the refresh token stayed the same: revoking would end it (platform 3.1).
 */
export class PersonTokens implements TokenSource {
  readonly #options: PersonTokensOptions;
  readonly #refused = new Set<string>();
  #renewal: Promise<StoredPerson> | undefined;

  constructor(options: PersonTokensOptions) {
    this.#options = options;
  }

  /** Throws `person.signed_out` where nobody is signed in, or the sign-in has ended. */
  async lease(): Promise<Lease> {
    const { accessToken } = await this.#usable();
    return {
      accessToken,
      accepted: () => undefined,
      refused: () => this.#refused.add(accessToken),
      release: () => undefined,
    };
  }

  /** Revokes the tokens (bearer form, platform 4.1) and forgets them. A token that is dead is renewed first, so that its refresh token ends too. */
  async signOut(): Promise<'revoked' | 'ended already' | 'not signed in'> {
    const { file } = this.#options;
    if ((await file.read()) === undefined) return 'not signed in';
    let outcome: 'revoked' | 'ended already' = 'revoked';
    try {
      await this.#revoke(await this.#usable()).catch(async (error: unknown) => {
        if (!(error instanceof GrantError) || error.failure !== 'refused') throw error;
        const { accessToken } = (await file.read()) ?? { accessToken: '' };
        this.#refused.add(accessToken);
        await this.#revoke(await this.#usable());
      });
    } catch (error) {
      if (!(error instanceof PlatformError) || error.code !== 'person.signed_out') throw error;
      outcome = 'ended already';
    }
    await file.remove();
    return outcome;
  }

  /** Puts the tokens of a fresh sign-in in the place of whatever was there, and revokes that. */
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
    if (person === undefined) throw signedOut('nobody is signed in here');
    if (this.#isGood(person)) return person;
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = undefined;
    });
    return await this.#renewal;
  }

  #isGood(person: StoredPerson): boolean {
    const leftMs = person.expiresWallMs - this.#options.clock.wallMs();
    return leftMs > MARGIN_MS && leftMs <= MAX_LIFE_MS && !this.#refused.has(person.accessToken);
  }

  async #renew(): Promise<StoredPerson> {
    const { file } = this.#options;
    return await file.locked(async () => {
      // Another verb may have renewed while this one waited.
      const person = await file.read();
      if (person === undefined) throw signedOut('nobody is signed in here');
      if (this.#isGood(person)) return person;
      const next = await this.#refresh(person);
      await file.write(next);
      await this.#retire(person, next);
      return next;
    });
  }

  async #refresh(person: StoredPerson): Promise<StoredPerson> {
    const { boundary, identityUrl, client, clock } = this.#options;
    if (person.refreshToken === undefined) throw signedOut('the sign-in has ended');
    const asked = personRefreshRequest(identityUrl, client(person.flow), person.refreshToken);
    const answer = await boundary.send(asked);
    try {
      return this.#stored(processPersonAnswer(answer, clock.wallMs(), person.refreshToken), person.flow);
    } catch (error) {
      if (!(error instanceof GrantError) || error.oauthError !== 'invalid_grant') throw error;
      throw signedOut('the sign-in has ended: it lasts 24 hours at most', error);
    }
  }

  /** Best effort: what is not revoked ends by itself within eleven minutes. */
  async #retire(before: StoredPerson, next: StoredPerson): Promise<void> {
    const dead = this.#refused.has(before.accessToken) || before.expiresWallMs <= this.#options.clock.wallMs();
    if (dead || before.accessToken === next.accessToken || before.refreshToken === next.refreshToken) return;
    await this.#revoke(before).catch(() => undefined);
  }

  async #revoke(person: StoredPerson): Promise<void> {
    const { boundary, identityUrl, client, clock } = this.#options;
    const asked = personRevokeRequest(identityUrl, client(person.flow), person.accessToken);
    processPersonRevocation(await boundary.send(asked), clock.wallMs());
  }

  #stored(tokens: Tokens, flow: SignInFlow): StoredPerson {
    const { accessToken, refreshToken, expiresInMs } = tokens;
    return { flow, accessToken, refreshToken, expiresWallMs: this.#options.clock.wallMs() + expiresInMs };
  }
}

function signedOut(message: string, cause?: unknown): PlatformError {
  return new PlatformError(message, { code: 'person.signed_out', hint: 'Sign in: tagferry login', cause });
}
