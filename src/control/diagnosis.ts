/** What `tagferry doctor` wants to know of the platform: asked with the daemon's session, or with a login of the doctor's own. */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Tags } from '../config/tags.ts';
import { hasNoBody, isPage, reportsDone } from '../platform/answer-body.ts';
import { CallRefusal, problemOf } from '../platform/call-refusal.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { PlatformAnswer } from '../platform/http-boundary.ts';
import { PermissionsV2 } from '../platform/resources/permissions-v2.ts';

/** One question and its answer, in words for people. */
interface Finding {
  ok: boolean;
  message: string;
  /** What to do next; empty where all is well. */
  next: string;
}

interface AssetFinding extends Finding {
  asset: number;
  /** Of the answer; `null` where there was none. */
  status: number | null;
}

interface InstrumentationFinding extends Finding {
  instrumentation: number;
}

export interface PlatformDiagnosis {
  /** One call that changes nothing. */
  call: Finding;
  /** Platform minus this machine, by the `Date` of its answers. */
  clock_offset_seconds: number | null;
  assets: AssetFinding[];
  /** Assets that were not asked for: there are too many. */
  assets_left: number;
  /** Of the tags, as far as the platform tells: it lists permissions of what this user sees. */
  instrumentations: InstrumentationFinding[];
}

/** A site of 500 assets would take a minute's whole budget. */
const MAX_ASSETS = 50;
const CALL_PATIENCE_MS = 20_000;

export interface DiagnosisParts {
  client: PlatformClient;
  clock: Clock;
  /** CLIENT_APPLICATION. */
  application: string | undefined;
  assets: readonly number[];
  instrumentations: readonly number[];
  /** REQUESTS_PER_MINUTE; 0 is no limit. */
  requestsPerMinute: number;
  /** Where values of an asset are posted. */
  pathOf(asset: number): string;
}

/** What tags.yaml names on the platform. */
export function objectsOfTags({ tags }: Tags): Pick<DiagnosisParts, 'assets' | 'instrumentations'> {
  const all = [...tags.values()];
  const instrumentations = all.flatMap(({ instrumentation }) =>
    instrumentation === undefined ? [] : [instrumentation],
  );
  return { assets: all.map(({ asset }) => asset), instrumentations };
}

/** So many as the pace of the budget lets through while a person waits: some eight seconds. */
function maxAssets(requestsPerMinute: number): number {
  return requestsPerMinute === 0 ? MAX_ASSETS : Math.max(1, Math.min(MAX_ASSETS, Math.floor(requestsPerMinute / 8)));
}

/** Asks the platform. Never throws: what goes wrong is a finding. */
export async function diagnosePlatform(parts: DiagnosisParts): Promise<PlatformDiagnosis> {
  const { client } = parts;
  const call = await askSafely(client, '/v1/client_applications', parts.application);
  const assets: AssetFinding[] = [];
  const unique = [...new Set(parts.assets)].sort((a, b) => a - b);
  if (call.ok) {
    for (const asset of unique.slice(0, maxAssets(parts.requestsPerMinute))) {
      const finding = await askAsset(parts, asset);
      assets.push(finding);
      // The platform went away: the others would only say the same again.
      if (finding.status === null) break;
    }
  }
  const offsetMs = client.platformClock.offsetMs();
  return {
    call,
    clock_offset_seconds: offsetMs === undefined ? null : Math.round(offsetMs / 1000),
    assets,
    assets_left: unique.length - assets.length,
    instrumentations: call.ok ? await askInstrumentations(parts) : [],
  };
}

/** What is no answer of the platform's, though one came: a redirect, a page, a success with something in it. */
function foreignAnswer(answer: PlatformAnswer, call: string): Omit<Finding, 'ok'> | undefined {
  const { status } = answer;
  const isSuccess = status >= 200 && status < 300 && !(call.startsWith('POST') && hasNoBody(answer));
  if (!isSuccess && !(status >= 300 && status < 400) && !isPage(answer)) return undefined;
  const what = isPage(answer) ? `${status} with a page` : String(status);
  const next = 'Sign this network in (a portal?), and check PLATFORM_URL, HTTPS_PROXY and PLATFORM_CA.';
  return { message: `something answers in the platform's place: ${what} to ${call}`, next };
}

function refusalOf(answer: PlatformAnswer, call: string): Omit<Finding, 'ok'> {
  const refusal = problemOf(answer, call);
  return { message: refusal.message, next: refusal.hint ?? '' };
}

/**
 * The spec has no call that reads an instrumentation; the list of an object's permissions (4.2) is shown to whoever sees the object, and
 * who sees it has one. Of units there is no call at all.
 */
async function askInstrumentations({
  client,
  instrumentations,
  requestsPerMinute,
}: DiagnosisParts): Promise<InstrumentationFinding[]> {
  const findings: InstrumentationFinding[] = [];
  const unique = [...new Set(instrumentations)].sort((a, b) => a - b);
  for (const instrumentation of unique.slice(0, maxAssets(requestsPerMinute))) {
    const listed = new PermissionsV2(client).list(
      { type: 'Instrumentation', id: instrumentation },
      AbortSignal.timeout(CALL_PATIENCE_MS),
    );
    try {
      const { done } = await listed[Symbol.asyncIterator]().next();
      const message = done
        ? `the platform shows this user nothing of instrumentation ${instrumentation}`
        : `instrumentation ${instrumentation} is known`;
      const next = done
        ? 'Check the number in tags.yaml; where it is right, give the technical user can_read on it.'
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

async function askSafely(client: PlatformClient, path: string, name: string | undefined): Promise<Finding> {
  try {
    const signal = AbortSignal.timeout(CALL_PATIENCE_MS);
    const query = name ? { name } : {};
    const answer = await client.request({ method: 'GET', path, query, kind: 'other', signal });
    if (answer.status === 200 && !hasNoBody(answer) && reportsDone(answer)) {
      return { ok: true, message: `GET ${path} answered ${answer.status}`, next: '' };
    }
    return { ok: false, ...(foreignAnswer(answer, `GET ${path}`) ?? refusalOf(answer, `GET ${path}`)) };
  } catch (error) {
    return failed(error);
  }
}

/**
 * Whether this user may post to an asset: a post without values is looked at as far as the permission and then changes nothing
 * (a 400 says that it got so far). The spec has no call that asks just that.
 */
async function askAsset({ client, pathOf }: DiagnosisParts, asset: number): Promise<AssetFinding> {
  try {
    const signal = AbortSignal.timeout(CALL_PATIENCE_MS);
    const path = pathOf(asset);
    const answer = await client.request({ method: 'POST', path, body: { values: [] }, kind: 'other', signal });
    const { status } = answer;
    const foreign = foreignAnswer(answer, `POST ${path}`);
    if (foreign) return { asset, status, ok: false, ...foreign };
    if ((status < 300 && hasNoBody(answer)) || status === 400 || status === 422) {
      return { asset, status, ok: true, message: `asset ${asset} takes values`, next: '' };
    }
    if (status === 404) {
      const next = `Check the number in tags.yaml; where it is right, give the technical user can_read and can_update on asset ${asset}.`;
      return { asset, status, ok: false, message: `asset ${asset} is not there, or may not be seen (404)`, next };
    }
    if (status === 403) {
      const next = `Give the technical user can_update on asset ${asset}; its values wait in the buffer until then.`;
      return { asset, status, ok: false, message: `asset ${asset} may be seen but not written (403)`, next };
    }
    return { asset, status, ok: false, ...refusalOf(answer, `POST ${path}`) };
  } catch (error) {
    return { asset, status: null, ...failed(error) };
  }
}

function failed(error: unknown): Finding {
  const hint = error instanceof TagferryError ? error.hint : undefined;
  const late = codeOf(error) === 'ABORT_ERR' || (error instanceof Error && error.name === 'TimeoutError');
  return {
    ok: false,
    message: late ? 'no answer within 20 s: the platform is slow, or the request budget is used up' : messageOf(error),
    next: hint ?? 'Look at the lines above: DNS, TCP, TLS and the login come first.',
  };
}
