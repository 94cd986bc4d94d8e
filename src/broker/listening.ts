import type { SubscribeOptions } from './subscriptions.ts';

/** What listens beside the agent to what a broker has and sends: a client of its own, which takes nothing from the agent. */
export interface Listening {
  subscribe(
    filter: string,
    handler: (message: { topic: string; payload: Uint8Array; headers?: ReadonlyMap<string, string> }) => Promise<void>,
    options?: SubscribeOptions,
  ): unknown;
  start(): void;
  state(): { connected: boolean; problem: string | undefined };
  /** Ends, and leaves nothing behind. */
  leave(): Promise<void>;
}
