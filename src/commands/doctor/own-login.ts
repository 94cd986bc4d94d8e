import type { Clock } from '../../base/clock.ts';
import { createLogger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { retryBounded } from '../../base/retry.ts';
import { secretsIn } from '../../config/setting-keys.ts';
import type { Settings } from '../../config/settings.ts';
import { PlatformClient } from '../../platform/client.ts';
import { createDispatcher } from '../../platform/dispatcher.ts';
import { HttpBoundary } from '../../platform/http-boundary.ts';
import { RequestBudget } from '../../platform/request-budget.ts';
import { TokenRequests } from '../../platform/session/token-requests.ts';

/** A login for a few calls, beside whatever the daemon does: one attempt, no file, and the token is revoked at the end. */
export interface OwnLogin {
  client: PlatformClient;
  redactor: Redactor;
  /** Of another's tokens, which this user's credentials may revoke. */
  revokeOther(token: string): Promise<void>;
  /** Rejects where the platform did not take the token back. */
  revoke(): Promise<void>;
  close(): Promise<void>;
}

/** A person waits for it. */
const PATIENCE_MS = 20_000;

/** Throws `PlatformError` where the login fails; nothing is left open then. */
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
  // The clock's timers keep no process alive: this one does, while the budget is waited for.
  const awake = setInterval(() => {}, PATIENCE_MS);
  const close = () => {
    clearInterval(awake);
    return boundary.close();
  };
  const credentials = {
    client: { clientId, clientSecret, clientAuth },
    user: { username: technicalUsername, password: technicalPassword },
  };
  const requests = new TokenRequests(boundary, platformUrl, () => credentials, clock);
  try {
    const { accessToken } = await requests.login(AbortSignal.timeout(PATIENCE_MS));
    const lease = { accessToken, accepted() {}, refused() {}, release() {} };
    const client = new PlatformClient({
      boundary,
      baseUrl: platformUrl,
      tokens: { lease: async () => lease },
      // No daemon runs here; what another gateway of the same user may need is left to it.
      budget: new RequestBudget(clock, { requestsPerMinute, requestsPerDay, quietSinceMs: Number.NEGATIVE_INFINITY }),
      apiKey: settings.apiKeyHeader ? { header: settings.apiKeyHeader, clientId } : undefined,
      clock,
      log: createLogger({ level: 'silent', format: 'json', fd: 2 }),
    });
    return {
      client,
      redactor,
      revokeOther: (token) => requests.revoke(token, AbortSignal.timeout(PATIENCE_MS)),
      revoke: () => {
        const signal = AbortSignal.timeout(PATIENCE_MS);
        return retryBounded(() => requests.revoke(accessToken, signal), { retries: 2, signal });
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
