import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ApiCalls } from '../platform/client.ts';
import type { Webhooks } from '../platform/resources/webhooks.ts';
import { CallRefusal } from '../platform/response-meanings.ts';
import { readLongFailure } from './delivery-failures.ts';
import type { KnownWebhook } from './known-webhook.ts';

/** WEBHOOK_REENABLE. */
export type Reenable = 'failures' | 'always' | 'never';

/**
 * `command`: disabled with `tagferry webhook disable` on this gateway. `platform`: disabled on the platform, by a user
 * or automatically (platform 3.2).
 */
export type DisabledBy = 'command' | 'platform';

export interface EnablementParts {
  policy: Reenable;
  platform: ApiCalls;
  known: KnownWebhook;
  log: Logger;
}

/** Command that enables this gateway's webhook. */
const ENABLE_COMMAND = 'tagferry webhook enable';
const HINT = `Run \`${ENABLE_COMMAND}\`.`;

/**
 * Tracks whether this gateway's webhook is enabled, and whether a command or the platform disabled it.
 *
 *   enabled ── `webhook disable` ──► disable ── PATCH ──► disabled ── `webhook enable`, or found enabled ──► enabled
 *   enabled ── found disabled ──► disabled by the platform ── two weeks of failures (3.2) ──► enabled
 *                                                          └─ otherwise it stays, until it is enabled manually
 *
 * A command is recorded in `webhook.json` before the request, so that the next check can complete it after a crash or a
 * lost response.
 */
export class Enablement {
  readonly #parts: EnablementParts;
  #disabledBy: DisabledBy | undefined;
  /**
   * Whether the deliveries list has been read since the webhook was found to be disabled. While it is disabled, the
   * list does not change.
   */
  #isJudged = false;

  constructor(parts: EnablementParts) {
    this.#parts = parts;
  }

  /** What disabled the webhook; undefined while the webhook is enabled or has not been found yet. */
  get disabledBy(): DisabledBy | undefined {
    return this.#disabledBy ?? (this.#parts.known.decision === 'disabled' ? 'command' : undefined);
  }

  /**
   * Completes a recorded command. If there is none, applies WEBHOOK_REENABLE based on the status listed by the
   * platform.
   */
  async settle(
    webhooks: Webhooks,
    application: number,
    { id, disabled }: { id: number; disabled: boolean },
    signal?: AbortSignal,
  ): Promise<void> {
    const { known } = this.#parts;
    if (known.decision === 'enable') return this.enable(webhooks, id, signal);
    if (known.decision === 'disable') return this.disable(webhooks, id, signal);
    if (!disabled) {
      this.#becomeEnabled();
      if (known.decision === undefined) return;
      await known.decide(undefined);
      this.#parts.log.info({ event: 'webhook.enabled', webhook: id }, 'webhook enabled on the platform');
    } else if (known.decision === 'disabled') this.#becomeDisabled('command', id);
    else await this.#applyPolicy(webhooks, application, id, signal);
  }

  async disable(webhooks: Webhooks, id: number, signal?: AbortSignal): Promise<void> {
    await this.#decide('disable', () => webhooks.setDisabled(id, true, signal));
    await this.#parts.known.decide('disabled');
    this.#becomeDisabled('command', id);
  }

  async enable(webhooks: Webhooks, id: number, signal?: AbortSignal): Promise<void> {
    await this.#decide('enable', () => webhooks.setDisabled(id, false, signal));
    await this.#parts.known.decide(undefined);
    this.#becomeEnabled();
    this.#parts.log.info({ event: 'webhook.enabled', webhook: id }, 'webhook enabled by command');
  }

  /** Called when the webhook no longer exists. If it was disabled by command, its replacement will also be disabled. */
  async lost(): Promise<void> {
    this.#becomeEnabled();
    if (this.#parts.known.decision === 'disabled') await this.#parts.known.decide('disable');
  }

  async #decide(decision: 'disable' | 'enable', request: () => Promise<void>): Promise<void> {
    const { known } = this.#parts;
    const before = known.decision;
    await known.decide(decision);
    try {
      await request();
    } catch (error) {
      // The platform permanently rejected the change, so restore the previous decision.
      if (error instanceof CallRefusal && !error.retryable) {
        await known.decide(before === 'disabled' ? before : undefined);
      }
      throw error;
    }
  }

  async #applyPolicy(webhooks: Webhooks, application: number, id: number, signal?: AbortSignal): Promise<void> {
    const { policy, known, log } = this.#parts;
    if (policy === 'never' || (policy === 'failures' && this.#isJudged)) return this.#becomeDisabled('platform', id);
    const failedMs = policy === 'failures' ? await this.#readFailure(application, id, signal) : undefined;
    if (policy === 'failures' && failedMs === undefined) return this.#becomeDisabled('platform', id);
    await webhooks.setDisabled(id, false, signal);
    if (failedMs !== undefined && known.record) await known.keep({ ...known.record, failuresUntilMs: failedMs });
    this.#becomeEnabled();
    const because = policy === 'always' ? 'WEBHOOK_REENABLE=always' : 'deliveries failed for two weeks';
    log.warn(
      { event: 'webhook.reenabled', webhook: id, because },
      'webhook was disabled on the platform, re-enabled it',
    );
  }

  /**
   * Reads the time of the latest failure. Failures for which the webhook was enabled before are not considered again,
   * because it may have been disabled manually since then.
   */
  async #readFailure(application: number, id: number, signal?: AbortSignal): Promise<number | undefined> {
    const { platform, known, log } = this.#parts;
    try {
      const failedMs = await readLongFailure(platform, application, id, known.record?.failuresUntilMs, signal);
      this.#isJudged = failedMs === undefined;
      return failedMs;
    } catch (error) {
      if (!(error instanceof CallRefusal) || error.retryable) throw error;
      const fields = { event: 'webhook.failures_unknown', webhook: id, error: messageOf(error), hint: HINT };
      if (this.#disabledBy === undefined) log.warn(fields, 'failed to determine why the webhook is disabled');
      return undefined;
    }
  }

  #becomeEnabled(): void {
    this.#disabledBy = undefined;
    this.#isJudged = false;
  }

  #becomeDisabled(by: DisabledBy, webhook: number): void {
    if (this.#disabledBy === by) return;
    this.#disabledBy = by;
    const fields = { event: 'webhook.stays_disabled', webhook, by, hint: HINT };
    this.#parts.log.warn(fields, 'webhook is disabled, events are only read from the deliveries list');
  }
}

/** Returns the health note for a webhook that remains disabled. */
export function disabledNotes(by: DisabledBy | undefined, webhook: number | undefined): string[] {
  if (by === undefined) return [];
  const cause = by === 'command' ? 'by `tagferry webhook disable`' : 'on the platform';
  return [`webhook ${webhook ?? ''} was disabled ${cause}; run \`${ENABLE_COMMAND}\` to enable it`];
}
