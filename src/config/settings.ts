import type { ListenAddress } from '../listen.ts';

/** agent.env as the agent uses it: one member for each key of INTERFACE.md, sizes in bytes, durations in milliseconds. */
export interface Settings {
  platformUrl: string;
  identityUrl: string;
  clientId: string;
  clientSecret: string;
  technicalUsername: string;
  technicalPassword: string;
  clientAuth: 'basic' | 'body';
  apiKeyHeader: string | undefined;
  valuesPath: string;
  postIntervalMs: number;
  postMaxValues: number;
  postMaxBytes: number;
  postGzip: boolean;
  postConcurrency: number;
  /** 0 is none. */
  requestsPerMinute: number;
  requestsPerDay: number;
  drainOrder: 'live-first' | 'oldest-first';
  /** 0 is none. */
  backfillValuesPerSecond: number;
  commitIntervalMs: number;
  commitValues: number;
  /** 0 is none. */
  bufferMaxBytes: number;
  bufferMaxAgeMs: number;
  bufferMinFree: { bytes: number } | { share: number };
  bufferFull: 'drop-oldest' | 'refuse-new';
  /** What becomes of times that the agent gave while the machine's clock could not be trusted. */
  clockUntrusted: 'correct' | 'send';
  /** `undefined` is off. */
  ingestListen: ListenAddress | undefined;
  webhookListen: ListenAddress | undefined;
  opsListen: ListenAddress | undefined;
  webhookUrl: string | undefined;
  webhookSecret: string | undefined;
  webhookEvents: readonly string[];
  webhookTlsCert: string | undefined;
  webhookTlsKey: string | undefined;
  webhookAcceptSha1: boolean;
  /** 0 is never. */
  webhookPollMs: number;
  platformCa: string | undefined;
  httpsProxy: string | undefined;
  noProxy: string | undefined;
  ingestToken: string | undefined;
  clientApplication: string | undefined;
  stateDir: string;
  logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal';
  logFormat: 'auto' | 'pretty' | 'json' | 'journal';
}

export type { ListenAddress };
