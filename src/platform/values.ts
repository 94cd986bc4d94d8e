import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { PlatformError } from '../errors.ts';
import type { PlatformClient } from './client.ts';
import type { PlatformAnswer } from './http-boundary.ts';
import type { RequestKind } from './request-budget.ts';

const compress = promisify(gzip);

export interface PostOptions {
  kind: RequestKind;
  signal?: AbortSignal;
  /** Fills `{instrumentation_id}`, where VALUES_PATH has it. */
  instrumentation?: number;
  /** Compresses the body: a tenth of the bytes on the wire, where the platform takes it. */
  gzip?: boolean;
}

/** VALUES_PATH with its placeholders filled in. Throws where it wants an instrumentation that the asset does not have. */
export function valuesPath(template: string, asset: number, instrumentation?: number): string {
  if (template.includes('{instrumentation_id}') && instrumentation === undefined) {
    throw new PlatformError(`asset ${asset} has no instrumentation to fill VALUES_PATH with`, {
      code: 'platform.values_path',
      hint: 'Name the instrumentation of its tags in tags.yaml, or use a VALUES_PATH without {instrumentation_id}.',
    });
  }
  return template
    .replaceAll('{asset_id}', String(asset))
    .replaceAll('{instrumentation_id}', String(instrumentation ?? ''));
}

/**
 * Posts one body of values (beyond-the-spec, "Posting values"). Gives whatever the platform answered: what it means for
 * the values is the uplink's to say.
 */
export async function postValues(
  client: PlatformClient,
  template: string,
  asset: number,
  body: Uint8Array,
  options: PostOptions,
): Promise<PlatformAnswer> {
  const { kind, signal, instrumentation } = options;
  const path = valuesPath(template, asset, instrumentation);
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (options.gzip) headers['content-encoding'] = 'gzip';
  return client.request({
    method: 'POST',
    path,
    body: options.gzip ? await compress(body) : body,
    headers,
    kind,
    signal,
  });
}
