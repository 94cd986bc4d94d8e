/** What `tagferry doctor` wants to know of the platform: asked with the daemon's session, or with a login of the doctor's own. */
import type { Clock } from '../clock.ts';
import { codeOf, messageOf, TagferryError } from '../errors.ts';
import { problemOf } from '../platform/call-refusal.ts';
import type { PlatformClient } from '../platform/client.ts';

/** One question and its answer, in words for people. */
export interface Finding {
  ok: boolean;
  message: string;
  /** What to do next; empty where all is well. */
  next: string;
}

export interface AssetFinding extends Finding {
  asset: number;
  /** Of the answer; `null` where there was none. */
  status: number | null;
}

export interface PlatformDiagnosis {
  /** One call that changes nothing. */
  call: Finding;
  /** Platform minus this machine, by the `Date` of its answers. */
  clock_offset_seconds: number | null;
  assets: AssetFinding[];
  /** Assets that were not asked for: there are too many. */
  assets_left: number;
}

/** A site of 500 assets would take a minute's whole budget. */
const MOST_ASSETS = 50;
const CALL_PATIENCE_MS = 20_000;

export interface DiagnosisParts {
  client: PlatformClient;
  clock: Clock;
  assets: readonly number[];
  /** REQUESTS_PER_MINUTE; 0 is no limit. */
  requestsPerMinute: number;
  /** Where values of an asset are posted. */
  pathOf(asset: number): string;
}

/** So many as the pace of the budget lets through while a person waits: some eight seconds. */
function mostAssets(requestsPerMinute: number): number {
  return requestsPerMinute === 0 ? MOST_ASSETS : Math.max(1, Math.min(MOST_ASSETS, Math.floor(requestsPerMinute / 8)));
}

/** Asks the platform. Never throws: what goes wrong is a finding. */
export async function diagnosePlatform(parts: DiagnosisParts): Promise<PlatformDiagnosis> {
  const { client } = parts;
  const call = await askSafely(client, '/v1/client_applications/current');
  const assets: AssetFinding[] = [];
  const unique = [...new Set(parts.assets)].sort((a, b) => a - b);
  if (call.ok) {
    for (const asset of unique.slice(0, mostAssets(parts.requestsPerMinute))) {
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
  };
}

async function askSafely(client: PlatformClient, path: string): Promise<Finding> {
  try {
    const signal = AbortSignal.timeout(CALL_PATIENCE_MS);
    const answer = await client.request({ method: 'GET', path, kind: 'other', signal });
    if (answer.status >= 200 && answer.status < 300) {
      return { ok: true, message: `GET ${path} answered ${answer.status}`, next: '' };
    }
    const refusal = problemOf(answer, `GET ${path}`);
    return { ok: false, message: refusal.message, next: refusal.hint ?? '' };
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
    if ((status >= 200 && status < 300) || status === 400 || status === 422) {
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
    const refusal = problemOf(answer, `POST ${path}`);
    return { asset, status, ok: false, message: refusal.message, next: refusal.hint ?? '' };
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
