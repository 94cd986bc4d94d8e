import { PlatformError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { ClientApplication } from '../../contract/webhooks.ts';
import type { ApiCalls } from '../client.ts';
import { listEntries } from '../pages.ts';
import { CallRefusal } from '../response-meanings.ts';
import type { ResponseRecord } from '../response-record.ts';

/** Statuses of a platform that does not provide `/current`, which is not documented (platform 10.4). */
const NOT_OFFERED: ReadonlySet<number> = new Set([404, 405]);
/** Maximum number of names listed in an error. */
const MAX_NAMED = 20;
const MAX_NAME = 100;

/** Client applications. Each connect subscription has one (platform 2.3, 4.5). */
export class ClientApplications {
  readonly #client: ApiCalls;

  constructor(client: ApiCalls) {
    this.#client = client;
  }

  /** `GET /v1/client_applications?name=`. Without a name, returns all visible applications. */
  list(name?: string, signal?: AbortSignal): AsyncIterable<ClientApplication> {
    const query = { name };
    return listEntries(this.#client, '/v1/client_applications', ['client_applications'], readApplication, {
      query,
      signal,
    });
  }

  /** `GET /v1/client_applications/current` (platform 10.4): returns the application to which the API key belongs. */
  async current(signal?: AbortSignal): Promise<ClientApplication> {
    const path = '/v1/client_applications/current';
    return readApplication(
      await this.#client.record({ method: 'GET', path, kind: 'other', signal }, 'client_application'),
    );
  }

  /**
   * Returns the application with exactly this name (CLIENT_APPLICATION). Without a name, returns the current
   * application, or the only visible application if the platform does not provide `/current`.
   */
  async find(name: string | undefined, signal?: AbortSignal): Promise<ClientApplication> {
    if (name === undefined || name === '') {
      return await this.current(signal).catch((error: unknown) => {
        if (!(error instanceof CallRefusal) || !NOT_OFFERED.has(error.status)) throw error;
        return this.#only(signal);
      });
    }
    for await (const found of this.list(name, signal)) if (found.name === name) return found;
    throw notFound(`no client application named ${JSON.stringify(name)} is visible to this user`);
  }

  async #only(signal?: AbortSignal): Promise<ClientApplication> {
    const names: string[] = [];
    let only: ClientApplication | undefined;
    for await (const found of this.list(undefined, signal)) {
      only ??= found;
      names.push(JSON.stringify(plain(found.name).slice(0, MAX_NAME)));
      if (names.length > MAX_NAMED) break;
    }
    if (only === undefined) throw notFound('no client application is visible to this user');
    if (names.length === 1) return only;
    const shown = names.slice(0, MAX_NAMED).join(', ');
    throw notFound(`several client applications are visible: ${shown}${names.length > MAX_NAMED ? ', …' : ''}`);
  }
}

function readApplication(record: ResponseRecord): ClientApplication {
  return { id: record.integer('id'), name: record.optional('name', record.string) ?? '' };
}

function notFound(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'platform.no_client_application',
    hint: 'Set CLIENT_APPLICATION to the name of the client application of your connect subscription.',
  });
}
