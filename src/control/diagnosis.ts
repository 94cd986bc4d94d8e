/** Platform checks for `tagferry doctor` and `setup`, in the agent's session or in a separate one. */
import { durationText } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Tags } from '../config/tags.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { PlatformAnswer } from '../platform/http-boundary.ts';
import { listPermissions } from '../platform/resources/permissions.ts';
import { hasNoBody, isPage, reportsDone } from '../platform/response-body.ts';
import { CallRefusal } from '../platform/response-meanings.ts';

/** Result of one check. */
interface Finding {
  ok: boolean;
  message: string;
  /** Recommended action; empty if the check passed. */
  next: string;
}

interface AssetFinding extends Finding {
  asset: number;
  /** HTTP status of the response; `null` if there was no response. */
  status: number | null;
}

interface InstrumentationFinding extends Finding {
  instrumentation: number;
}

export interface PlatformDiagnosis {
  /** A read-only call. */
  call: Finding;
  /** Platform time (`Date` of its responses) minus gateway time, in seconds. */
  clock_offset_seconds: number | null;
  assets: AssetFinding[];
  /** Number of assets beyond the limit, which were not checked. */
  assets_left: number;
  /** Instrumentations in tags.yaml, checked by listing the permissions on them that the user can see. */
  instrumentations: InstrumentationFinding[];
}

/** Checking 500 assets would use up the request budget for one minute. */
const MAX_ASSETS = 50;
const CALL_TIMEOUT_MS = 20_000;

export interface DiagnosisParts {
  client: PlatformClient;
  clock: Clock;
  /** Value of CLIENT_APPLICATION. */
  application: string | undefined;
  assets: readonly number[];
  instrumentations: readonly number[];
  /** Value of REQUESTS_PER_MINUTE; 0 means no limit. */
  requestsPerMinute: number;
  /** Monotonic end of a pause after a 429, in milliseconds. */
  restingUntilMs?: number | undefined;
  /** Returns the path to which values of an asset are posted. */
  pathOf(asset: number): string;
}

/** Returns the assets and instrumentations in tags.yaml. */
export function objectsOfTags({ tags }: Tags): Pick<DiagnosisParts, 'assets' | 'instrumentations'> {
  const all = [...tags.values()];
  const instrumentations = all.flatMap(({ instrumentation }) =>
    instrumentation === undefined ? [] : [instrumentation],
  );
  return { assets: all.map(({ asset }) => asset), instrumentations };
}

/** Returns the number of requests that the budget allows in about eight seconds, while a person waits. */
function maxAssets(requestsPerMinute: number): number {
  return requestsPerMinute === 0 ? MAX_ASSETS : Math.max(1, Math.min(MAX_ASSETS, Math.floor(requestsPerMinute / 8)));
}

/** Checks the platform. Reports failures as findings and never throws. */
export async function diagnosePlatform(parts: DiagnosisParts): Promise<PlatformDiagnosis> {
  const { client } = parts;
  const call = pauseOf(parts) ?? (await checkCall(client, '/v1/client_applications', parts.application));
  const assets: AssetFinding[] = [];
  const unique = [...new Set(parts.assets)].sort((a, b) => a - b);
  if (call.ok) {
    for (const asset of unique.slice(0, maxAssets(parts.requestsPerMinute))) {
      const finding = await checkAsset(parts, asset);
      assets.push(finding);
      // The platform is unreachable, so the remaining checks would fail too.
      if (finding.status === null) break;
    }
  }
  const offsetMs = client.platformClock.offsetMs();
  return {
    call,
    clock_offset_seconds: offsetMs === undefined ? null : Math.round(offsetMs / 1000),
    assets,
    assets_left: unique.length - assets.length,
    instrumentations: call.ok ? await checkInstrumentations(parts) : [],
  };
}

/** Reports a pause after a 429, in which calls would wait. */
function pauseOf({ clock, restingUntilMs }: DiagnosisParts): Finding | undefined {
  if (restingUntilMs === undefined) return undefined;
  const seconds = Math.max(1, Math.ceil((restingUntilMs - clock.monotonicMs()) / 1000));
  const message = `rate limited by the platform (429), all calls paused for ${durationText(seconds)}`;
  return { ok: false, message, next: 'Run the command again after the pause.' };
}

/**
 * Recognizes responses that are not from the platform: a redirect, an HTML page, or a success with an unexpected body.
 */
function foreignAnswer(answer: PlatformAnswer, call: string): Omit<Finding, 'ok'> | undefined {
  const { status } = answer;
  const isSuccess = status >= 200 && status < 300 && !(call.startsWith('POST') && hasNoBody(answer));
  if (!isSuccess && !(status >= 300 && status < 400) && !isPage(answer)) return undefined;
  const what = isPage(answer) ? `${status} with an HTML page` : String(status);
  const next = new CallRefusal(answer, call).hint ?? 'Check which server or proxy responds at PLATFORM_URL.';
  return { message: `the response is not from the platform: ${what} to ${call}`, next };
}

function rejectionOf(answer: PlatformAnswer, call: string): Omit<Finding, 'ok'> {
  const { message, hint = '' } = new CallRefusal(answer, call);
  return { message, next: hint };
}

/**
 * Lists the permissions on each instrumentation (platform 4.2), because no API call reads an instrumentation. A user
 * who can see the object has a permission on it and can list that permission. No API call reads units.
 */
async function checkInstrumentations({
  client,
  instrumentations,
  requestsPerMinute,
}: DiagnosisParts): Promise<InstrumentationFinding[]> {
  const findings: InstrumentationFinding[] = [];
  const unique = [...new Set(instrumentations)].sort((a, b) => a - b);
  for (const instrumentation of unique.slice(0, maxAssets(requestsPerMinute))) {
    const listed = listPermissions(
      client,
      2,
      { type: 'Instrumentation', id: instrumentation },
      AbortSignal.timeout(CALL_TIMEOUT_MS),
    );
    try {
      const { done } = await listed[Symbol.asyncIterator]().next();
      const message = done
        ? `the technical user cannot see instrumentation ${instrumentation}`
        : `instrumentation ${instrumentation} found`;
      const next = done
        ? 'Check the number in tags.yaml. If it is correct, grant the technical user can_read on the instrumentation.'
        : '';
      findings.push({ instrumentation, ok: done !== true, message, next });
    } catch (error) {
      if (!(error instanceof CallRefusal)) break;
      const { message, hint } = error;
      findings.push({ instrumentation, ok: false, message, next: hint ?? 'Check the number in tags.yaml.' });
    }
  }
  return findings;
}

async function checkCall(client: PlatformClient, path: string, name: string | undefined): Promise<Finding> {
  try {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const query = name ? { name } : {};
    const answer = await client.request({ method: 'GET', path, query, kind: 'other', signal });
    if (answer.status === 200 && !hasNoBody(answer) && reportsDone(answer)) {
      return { ok: true, message: `GET ${path} returned ${answer.status}`, next: '' };
    }
    return { ok: false, ...(foreignAnswer(answer, `GET ${path}`) ?? rejectionOf(answer, `GET ${path}`)) };
  } catch (error) {
    return failed(error);
  }
}

/**
 * Checks whether this user can post to an asset by sending a post without values. The platform checks the permission
 * first and then rejects the empty list (400), so nothing changes. No API call reads the permission itself.
 */
async function checkAsset({ client, pathOf }: DiagnosisParts, asset: number): Promise<AssetFinding> {
  try {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const path = pathOf(asset);
    const answer = await client.request({ method: 'POST', path, body: { values: [] }, kind: 'other', signal });
    const { status } = answer;
    const foreign = foreignAnswer(answer, `POST ${path}`);
    if (foreign) return { asset, status, ok: false, ...foreign };
    const isAllowed = (status < 300 && hasNoBody(answer)) || status === 400 || status === 422;
    if (isAllowed) return { asset, status, ok: true, message: `asset ${asset} accepts values`, next: '' };
    if (status === 404) {
      const message = `asset ${asset} does not exist or is not visible to the technical user (404)`;
      const next = `Check the number in tags.yaml. If it is correct, grant the technical user can_read and can_update on asset ${asset}.`;
      return { asset, status, ok: false, message, next };
    }
    if (status === 403) {
      const message = `asset ${asset} is visible but not writable for the technical user (403)`;
      const next = `Grant the technical user can_update on asset ${asset}. Its values stay in the buffer until then.`;
      return { asset, status, ok: false, message, next };
    }
    return { asset, status, ok: false, ...rejectionOf(answer, `POST ${path}`) };
  } catch (error) {
    return { asset, status: null, ...failed(error) };
  }
}

function failed(error: unknown): Finding {
  const hint = error instanceof TagferryError ? error.hint : undefined;
  const isTimeout = codeOf(error) === 'ABORT_ERR' || (error instanceof Error && error.name === 'TimeoutError');
  const late = 'no response within 20 s: the platform is slow, or the request budget is used up';
  const next = hint ?? 'Fix the failed checks above first: DNS, TCP, TLS and the login.';
  return { ok: false, message: isTimeout ? late : messageOf(error), next };
}
