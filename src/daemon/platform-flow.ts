/** The way to the platform: sockets, session, request budget, client. */

import { Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { ConfigurationError, codeOf } from '../base/errors.ts';
import { IdentityConflicts } from '../base/identity-conflicts.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { secretsIn } from '../config/setting-keys.ts';
import type { Settings } from '../config/settings.ts';
import { jsonObjectOf } from '../platform/answer-body.ts';
import { PlatformClient } from '../platform/client.ts';
import { createDispatcher, type Sockets } from '../platform/dispatcher.ts';
import type { SecretCommands } from '../platform/grants/grant-error.ts';
import { HttpBoundary } from '../platform/http-boundary.ts';
import { RequestBudget } from '../platform/request-budget.ts';
import { Session } from '../platform/session/session.ts';
import { SessionFile } from '../platform/session/session-file.ts';
import { sessionReport } from '../platform/session/session-report.ts';
import type { SessionCredentials } from '../platform/session/token-requests.ts';
import { secretCommand } from './credential-watch.ts';

/** Sockets beside those for posts: the session and the webhook's calls must not wait for a slow post. */
const OTHER_SOCKETS = 3;
/** A person waits for it. */
const TEST_DEADLINE_MS = 15_000;

export interface PlatformFlowOptions {
  settings: Settings;
  version: string;
  clock: Clock;
  log: Logger;
  onRenewal(grant: string): void;
  /** Whether no agent ever had the state folder. */
  neverRan: boolean;
  /** Of the process: it decides how a changed secret takes effect. */
  environment: NodeJS.ProcessEnv;
}

export class PlatformFlow {
  readonly #sockets: Sockets;
  readonly session: Session;
  readonly budget: RequestBudget;
  readonly client: PlatformClient;
  readonly boundary: HttpBoundary;
  /** All that the agent uses: the flows report theirs here too. */
  readonly certificates = new Certificates();
  /** Signs of another agent with this identity: the flows report theirs here too. */
  readonly identityConflicts: IdentityConflicts;
  /** Knows every secret in force. */
  readonly redactor = new Redactor();

  /** Read at each token request: a reload may bring new ones. */
  #credentials: SessionCredentials;
  readonly #commands: SecretCommands;

  /** Throws `ConfigurationError` where PLATFORM_CA cannot be read. */
  constructor(options: PlatformFlowOptions) {
    const { settings, clock, log, environment } = options;
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
      httpsProxy: settings.httpsProxy,
      noProxy: settings.noProxy,
      onCertificate: (endsMs) => this.certificates.note('platform', endsMs),
    });
    const { redactor } = this;
    const userAgent = `tagferry/${options.version}`;
    this.boundary = new HttpBoundary({ sockets: this.#sockets, clock, redactor, userAgent });
    this.session = new Session({
      // A granted token informs the clock before the first call of the API can.
      boundary: {
        send: async (request) => {
          const answer = await this.boundary.send(request);
          const tokens = answer.status === 200 ? jsonObjectOf(answer) : undefined;
          if (tokens?.access_token) this.client.platformClock.witnessGrant(answer, tokens.created_at);
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
      // Where nothing ever ran, nothing can have been posted a moment ago.
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

  /** Posts to an address that is no API: whether the webhook's is reachable. No token goes with it. */
  senderTo(url: string): (headers: Readonly<Record<string, string>>, body: Uint8Array) => Promise<number> {
    return async (headers, body) => {
      const request = { method: 'POST', url: new URL(url), headers, body, deadlineMs: TEST_DEADLINE_MS } as const;
      return (await this.boundary.send(request)).status;
    };
  }

  /** For health, `status` and `session show`. */
  sessionReport() {
    return sessionReport(this.session);
  }

  /** New credentials, and a session that was refused tries at once. */
  reload(settings: Settings): void {
    this.#credentials = credentialsOf(settings, this.#commands);
    this.redactor.configure(secretsIn(settings));
    this.session.tryNow();
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
      `PLATFORM_CA: ${path} cannot be read (${codeOf(error)}), name a PEM file that this user may read`,
    ]);
  }
}
