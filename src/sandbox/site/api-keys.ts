import type { ApiKey, Application } from './records.ts';

/** An application as a seed, a state file of before and `PUT /sandbox/objects` may write it: with its first API key in it. */
export type ApplicationWithKey = Application & { client_id?: string; client_secret?: string };

/** Takes the key out of an application's record; it has the application's id unless it is told otherwise. */
export function withoutKey(written: ApplicationWithKey): { application: Application; key: ApiKey | undefined } {
  const { client_id, client_secret, ...application } = written;
  if (client_id === undefined || client_secret === undefined) return { application, key: undefined };
  return { application, key: { id: application.id, client_application: application.id, client_id, client_secret } };
}
