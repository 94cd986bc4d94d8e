import { PlatformError } from '../../base/errors.ts';
import type { ClientApplication } from '../../contract/webhooks.ts';
import type { ApiCalls } from '../client.ts';
import { listEntries } from '../pages.ts';

/** Client applications: one for each connect subscription (platform 2.3, 4.5). */
export class ClientApplications {
  readonly #client: ApiCalls;

  constructor(client: ApiCalls) {
    this.#client = client;
  }

  /** `GET /v1/client_applications?name=`; without a name all that can be seen. */
  list(name?: string, signal?: AbortSignal): AsyncIterable<ClientApplication> {
    return listEntries(this.#client, '/v1/client_applications', ['client_applications'], { query: { name }, signal });
  }

  /** `GET /v1/client_applications/current` (platform 10.3): the one whose API key is used. */
  async current(signal?: AbortSignal): Promise<ClientApplication> {
    const path = '/v1/client_applications/current';
    type Body = ClientApplication & { client_application?: ClientApplication };
    const body = await this.#client.call<Body>({ method: 'GET', path, kind: 'other', signal });
    const found = body?.client_application ?? body;
    if (typeof found?.id !== 'number') throw notFound('the platform does not say which client application this is');
    return found;
  }

  /** The one of that exact name (CLIENT_APPLICATION), or the current one where no name is given. */
  async find(name: string | undefined, signal?: AbortSignal): Promise<ClientApplication> {
    if (name === undefined || name === '') return this.current(signal);
    for await (const found of this.list(name, signal)) if (found.name === name) return found;
    throw notFound(`there is no client application named ${JSON.stringify(name)} that this user can see`);
  }
}

function notFound(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'platform.no_client_application',
    hint: 'Set CLIENT_APPLICATION to the name of the client application of your connect subscription.',
  });
}
