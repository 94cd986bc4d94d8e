/** What health, status and metrics read of the buffer and of the events; the daemon hands it over. */
import type { Holds } from '../access/holds.ts';
import type { OwnUser } from '../access/own-access.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { SilentTarget } from '../reactions/targets.ts';
import type { FailingWebhook } from '../webhook/failure-watch.ts';
import type { ListedEvent } from '../webhook/inbox-event.ts';
import type { WebhookRegistration } from '../webhook/registration.ts';

export interface ShownBuffer {
  readonly facts: StoreFacts;
  /** How long the oldest value has waited until now; 0 if no value waits. */
  readonly oldestAgeMs: number;
  readonly catalogue: SeriesCatalogue;
  /** Values that are not delivered, without quarantine. */
  readonly bufferedValues: number;
  readonly committer: { readonly waitingValues: number };
  /** Corrupt stores and rows since the start. */
  readonly setAside: number;
  /** Sentences; empty where values can be taken in. */
  readonly problems: readonly string[];
  /** BUFFER_MIN_FREE in bytes of the file system. */
  readonly minFreeBytes: number;
}

export interface InboxLook {
  readonly inbox: { list(query: { limit: number }): Promise<ListedEvent[]> };
}

export interface ShownEvents {
  readonly holds: Pick<Holds, 'heldCount' | 'list' | 'lostNodes'>;
  readonly registration: Pick<WebhookRegistration, 'current' | 'disabledBy' | 'isSecretKnown'>;
  /** Deliveries that keep failing, which will disable the webhook. */
  readonly failingWebhook: FailingWebhook | undefined;
  /** Whose events of access count; `undefined` where the user is unknown. */
  readonly ownUser: OwnUser | undefined;
  /** Targets of reactions that do not respond. */
  readonly silentTargets: readonly SilentTarget[];
  /** Where the webhook listener is; `undefined` where it is off. */
  readonly listening: string | undefined;
}
