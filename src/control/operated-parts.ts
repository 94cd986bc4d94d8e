/** What verbs work on, of the buffer and of the events; a daemon hands it over, or a verb that opened the state folder itself. */
import type { Committer } from '../buffer/client/committer.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { ReactionRunner } from '../reactions/runner.ts';
import type { BufferServices, Remote } from '../store/store-api.ts';
import type { CatchUp } from '../webhook/catch-up.ts';
import type { Deliveries } from '../webhook/deliveries.ts';
import type { WebhookRegistration } from '../webhook/registration.ts';
import type { SelfTestLine } from '../webhook/self-test.ts';

/** What a step of an operator's work is committed by. */
export interface CommittedBuffer {
  readonly committer: Pick<Committer, 'flush' | 'note'>;
  readonly facts: StoreFacts;
}

export interface OperatedBuffer extends CommittedBuffer {
  readonly operator: Remote<BufferServices['operator']>;
  readonly catalogue: SeriesCatalogue;
}

export interface OperatedEvents {
  readonly runner: Pick<ReactionRunner, 'replay'>;
  readonly catchUp: Pick<CatchUp, 'catchUpNow'>;
  readonly deliveries: Pick<Deliveries, 'list' | 'resend' | 'resendFailed'>;
  readonly registration: Pick<
    WebhookRegistration,
    'list' | 'register' | 'enable' | 'disable' | 'disabledBy' | 'rotateSecret' | 'delete' | 'prune'
  >;
  testWebhook(): Promise<SelfTestLine[]>;
}
