import type { HttpRequest, PlatformAnswer } from '../../platform/http-boundary.ts';
import type { TokenSource } from '../../platform/token-source.ts';

export interface PlannedRequest {
  method: string;
  url: string;
  body?: unknown;
}

/** Stands where the network would: keeps the requests that would be made, and answers as if they had been. */
export class DryRun {
  readonly requests: PlannedRequest[] = [];

  async send(request: HttpRequest): Promise<PlatformAnswer> {
    const { method, url, body } = request;
    const text = typeof body === 'string' ? body : undefined;
    this.requests.push({ method, url: url.href, ...(text === undefined ? {} : { body: JSON.parse(text) }) });
    return { status: 204, header: () => undefined, text: '', redact: String };
  }

  /** The header is never shown, so nobody has to be signed in. */
  readonly tokens: TokenSource = {
    lease: async () => ({
      accessToken: 'none',
      accepted: () => undefined,
      refused: () => undefined,
      release: () => undefined,
    }),
  };
}
