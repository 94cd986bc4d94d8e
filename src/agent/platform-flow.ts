/** Platform access: sockets, session, request budget and client. */

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { Certificates } from '../base/certificates.ts';
import { type Clock, plausibleWallMs } from '../base/clock.ts';
import { ConfigurationError, codeOf, messageOf, type TagferryError } from '../base/errors.ts';
import { IdentityConflicts } from '../base/identity-conflicts.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { RESTART } from '../config/configuration-report.ts';
import { type KeyName, secretsIn } from '../config/setting-keys.ts';
import type { Settings } from '../config/settings.ts';
import { PlatformClient } from '../platform/client.ts';
import { createDispatcher, type Sockets } from '../platform/dispatcher.ts';
import type { SessionCredentials } from '../platform/grants.ts';
import { HttpBoundary } from '../platform/http-boundary.ts';
import { RequestBudget } from '../platform/request-budget.ts';
import { isSignInRefused, type SecretCommands } from '../platform/response-meanings.ts';
import { SessionFile } from '../platform/session/live-tokens.ts';
import { Session } from '../platform/session/session.ts';
import type { JudgingTime } from '../reactions/rules.ts';

/** Additional sockets for session and webhook calls, so that they do not wait for slow posts. */
const OTHER_SOCKETS = 3;
/** Short, because a user is waiting for the result. */
const TEST_DEADLINE_MS = 15_000;

export interface PlatformFlowOptions {
  settings: Settings;
  version: string;
  clock: Clock;
  log: Logger;
  onRenewal(grant: string): void;
  /** Whether the state folder has never been used by an agent. */
  neverRan: boolean;
  /** Process environment, which determines how a changed secret is applied. */
  environment: NodeJS.ProcessEnv;
}

export class PlatformFlow {
  readonly #clock: Clock;
  readonly #sockets: Sockets;
  readonly session: Session;
  readonly budget: RequestBudget;
  readonly client: PlatformClient;
  readonly boundary: HttpBoundary;
  /** Certificates in use, including those reported by other parts. */
  readonly certificates = new Certificates();
  /** Conflicts with another agent that has the same identity, including those reported by other parts. */
  readonly identityConflicts: IdentityConflicts;
  /** Redacts all secrets in use. */
  readonly redactor = new Redactor();

  /** Read for each token request, because a reload may change them. */
  #credentials: SessionCredentials;
  /** Whether the platform has not responded to a sign-in with the credentials since they were changed. */
  #isUntested = false;
  readonly #commands: SecretCommands;

  /** Throws `ConfigurationError` if PLATFORM_CA cannot be read. */
  constructor(options: PlatformFlowOptions) {
    const { settings, clock, log, environment } = options;
    this.#clock = clock;
    this.identityConflicts = new IdentityConflicts(clock, log);
    this.#commands = {
      clientSecret: secretCommand('CLIENT_SECRET', environment),
      password: secretCommand('TECHNICAL_PASSWORD', environment),
    };
    this.#credentials = credentialsOf(settings, this.#commands);
    this.redactor.configure(secretsIn(settings));
    this.#sockets = createDispatcher({
      connections: settings.postConcurrency + OTHER_SOCKETS,
      caPem: settings.platformCa === undefined ? undefined : readAuthority(settings.platformCa),
      caPath: settings.platformCa,
      httpsProxy: settings.httpsProxy,
      noProxy: settings.noProxy,
      onCertificate: (endsMs) => this.certificates.note('platform', endsMs),
    });
    const { redactor } = this;
    const userAgent = `tagferry/${options.version}`;
    this.boundary = new HttpBoundary({ sockets: this.#sockets, clock, redactor, userAgent });
    this.session = new Session({
      // A token response sets the platform clock before the first API call.
      boundary: {
        send: async (request) => {
          const answer = await this.boundary.send(request);
          this.client.platformClock.read(answer);
          return answer;
        },
      },
      baseUrl: settings.platformUrl,
      credentials: () => this.#credentials,
      file: new SessionFile(settings.stateDir),
      clock,
      log,
      redactor,
      onRenewal: (grant) => options.onRenewal(grant),
      onRevokedElsewhere: () => this.identityConflicts.report('token'),
    });
    this.budget = new RequestBudget(clock, {
      requestsPerMinute: settings.requestsPerMinute,
      requestsPerDay: settings.requestsPerDay,
      // On a new gateway, no earlier requests count against the limit.
      ...(options.neverRan ? { quietSinceMs: Number.NEGATIVE_INFINITY } : {}),
    });
    this.client = new PlatformClient({
      boundary: this.boundary,
      baseUrl: settings.platformUrl,
      tokens: this.session,
      budget: this.budget,
      apiKey: settings.apiKeyHeader ? { header: settings.apiKeyHeader, clientId: settings.clientId } : undefined,
      clock,
      log,
    });
  }

  /**
   * Returns the wall-clock time if it is plausible, otherwise the platform time. Many gateways have no real-time clock:
   * they boot in 1970 and jump when NTP responds.
   */
  trustedNowMs(): number | undefined {
    return plausibleWallMs(this.#clock) ?? this.client.platformClock.nowMs();
  }

  /**
   * Returns the time with which the age of events is computed. Event times and the `Date` header both come from the
   * platform, so an inaccurate gateway clock has no effect. The gateway clock is used only if the platform time is
   * unknown and the agent is ready (after the first login attempt).
   */
  eventTime(isReady: boolean): JudgingTime | undefined {
    const platformMs = this.client.platformClock.nowMs();
    if (platformMs !== undefined) return { ms: platformMs, clock: 'platform' };
    const wallMs = plausibleWallMs(this.#clock);
    if (!isReady || wallMs === undefined) return undefined;
    return { ms: wallMs, clock: 'gateway' };
  }

  /** Returns a function that sends requests without a token to an address outside the API, such as the webhook. */
  senderTo(url: string): (headers: Readonly<Record<string, string>>, body: Uint8Array) => Promise<number> {
    return async (headers, body) => {
      const request = { method: 'POST', url: new URL(url), headers, body, deadlineMs: TEST_DEADLINE_MS } as const;
      return (await this.boundary.send(request)).status;
    };
  }

  /**
   * Signs in with changed credentials before a reload applies them, or with those that the previous reload could not
   * test. Returns a warning if the platform does not respond. Throws `ConfigurationError` if the platform rejects the
   * credentials; the previous credentials and tokens then stay in use.
   */
  async tryCredentials(settings: Settings): Promise<string | undefined> {
    const next = credentialsOf(settings, this.#commands);
    const isChanged = !isDeepStrictEqual(next, this.#credentials);
    const isSignedIn = this.session.snapshot().state === 'valid';
    if (!isChanged && (!this.#isUntested || isSignedIn)) return undefined;
    const failure = await this.session.tryCredentials(next, () => {
      this.#credentials = next;
    });
    if (failure !== undefined && isSignInRefused(failure)) {
      const { hint } = failure as TagferryError;
      throw new ConfigurationError([`the platform rejected the credentials: ${messageOf(failure)}. ${hint}`]);
    }
    this.#isUntested = failure !== undefined;
    return failure === undefined ? undefined : `warning: credentials were not tested: ${messageOf(failure)}`;
  }

  /** Applies new credentials. If the session was rejected, it is retried immediately. */
  reload(settings: Settings): void {
    this.#credentials = credentialsOf(settings, this.#commands);
    this.redactor.configure(secretsIn(settings));
    void this.#sockets.readAuthority?.();
    this.session.retryNow();
  }

  /** Revokes the tokens within the budget, then closes the sockets. */
  async stop(budgetMs: number): Promise<void> {
    await this.session.stop(budgetMs);
    await this.#sockets.destroy();
  }
}

function credentialsOf(settings: Settings, commands: SecretCommands): SessionCredentials {
  const { clientId, clientSecret, clientAuth, technicalUsername, technicalPassword } = settings;
  return {
    client: { clientId, clientSecret, clientAuth },
    user: { username: technicalUsername, password: technicalPassword },
    commands,
  };
}

function readAuthority(path: string): string {
  try {
    return readRegularFileSync(path).bytes.toString();
  } catch (error) {
    throw new ConfigurationError([
      `PLATFORM_CA: cannot read ${path} (${codeOf(error)}), specify a PEM file that the service user can read`,
    ]);
  }
}

/**
 * Returns the command that applies a changed secret, because a process receives credentials and environment only
 * once.
 */
function secretCommand(key: KeyName, environment: NodeJS.ProcessEnv): string {
  const folder = environment.CREDENTIALS_DIRECTORY;
  // The unit passes an empty line if the file is missing.
  const isCredential = folder && (statSync(join(folder, key.toLowerCase()), { throwIfNoEntry: false })?.size ?? 0) > 1;
  return isCredential || environment[key] ? RESTART : '`tagferry reload`';
}
