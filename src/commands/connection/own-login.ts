import type { Clock } from '../../base/clock.ts';
import { createLogger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { retryBounded } from '../../base/retry.ts';
import { secretsIn } from '../../config/setting-keys.ts';
import type { Settings } from '../../config/settings.ts';
import { PlatformClient } from '../../platform/client.ts';
import { createDispatcher } from '../../platform/dispatcher.ts';
import { TokenRequests } from '../../platform/grants.ts';
import { HttpBoundary } from '../../platform/http-boundary.ts';
import { RequestBudget } from '../../platform/request-budget.ts';

/**
 * Short-lived session for a few calls, independent of the agent. The login is attempted once. The session is not
 * stored, and the caller revokes it.
 */
export interface OwnLogin {
  client: PlatformClient;
  redactor: Redactor;
  /** Revokes a token that another session of the same technical user obtained. */
  revokeOther(token: string): Promise<void>;
  /** Revokes the token of this session. Rejects if the platform fails to revoke the token. */
  revoke(): Promise<void>;
  close(): Promise<void>;
}

const TIMEOUT_MS = 20_000;

/** Closes all sockets and throws `PlatformError` if the login fails. */
export async function logIn(
  settings: Settings,
  { clock, version }: { clock: Clock; version: string },
): Promise<OwnLogin> {
  const { clientId, clientSecret, clientAuth, technicalUsername, technicalPassword, platformUrl } = settings;
  const { requestsPerMinute, requestsPerDay } = settings;
  const sockets = createDispatcher({
    connections: 2,
    caPem: settings.platformCa === undefined ? undefined : readRegularFileSync(settings.platformCa).bytes.toString(),
    httpsProxy: settings.httpsProxy,
    noProxy: settings.noProxy,
  });
  const redactor = new Redactor();
  redactor.configure(secretsIn(settings));
  const boundary = new HttpBoundary({ sockets, clock, redactor, userAgent: `tagferry/${version}` });
  // This timer keeps the process alive while it waits for the request budget, because the clock's timers do not.
  const awake = setInterval(() => {}, TIMEOUT_MS);
  const close = () => {
    clearInterval(awake);
    return boundary.close();
  };
  const credentials = {
    client: { clientId, clientSecret, clientAuth },
    user: { username: technicalUsername, password: technicalPassword },
  };
  let accessToken = '';
  const client = new PlatformClient({
    boundary,
    baseUrl: platformUrl,
    tokens: { lease: async () => ({ accessToken, responded: () => undefined, release() {} }) },
    // Even if no agent is running, stay within the limits, because other gateways may share them.
    budget: new RequestBudget(clock, { requestsPerMinute, requestsPerDay, quietSinceMs: Number.NEGATIVE_INFINITY }),
    apiKey: settings.apiKeyHeader ? { header: settings.apiKeyHeader, clientId } : undefined,
    clock,
    log: createLogger({ level: 'silent', format: 'json', fd: 2 }),
  });
  // The token response sets the platform clock.
  const send: HttpBoundary['send'] = async (request) => {
    const answer = await boundary.send(request);
    client.platformClock.read(answer);
    return answer;
  };
  const requests = new TokenRequests({ send }, platformUrl, () => credentials);
  try {
    ({ accessToken } = await requests.login(AbortSignal.timeout(TIMEOUT_MS)));
    return {
      client,
      redactor,
      revokeOther: (token) => requests.revoke(token, AbortSignal.timeout(TIMEOUT_MS)),
      revoke: () => {
        const signal = AbortSignal.timeout(TIMEOUT_MS);
        return retryBounded(() => requests.revoke(accessToken, signal), { retries: 2, signal });
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
