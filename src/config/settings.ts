import type { ListenAddress } from '../base/listen.ts';

/** agent.env as the agent uses it: one member for each key of docs/interface.md, sizes in bytes, durations in milliseconds. */
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
  postSuccess: readonly number[];
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
  /** Further names by which programs may call the listener. */
  ingestHosts: readonly string[] | undefined;
  /** What is right of a line-protocol request is taken. */
  ingestPartial: boolean;
  /** `measurement`, or the Influx tag that names the tag. */
  ingestTagFrom: string;
  ingestTlsCert: string | undefined;
  ingestTlsKey: string | undefined;
  opsToken: string | undefined;
  opsHosts: readonly string[] | undefined;
  opsTlsCert: string | undefined;
  opsTlsKey: string | undefined;
  /** How many series programs may open; `undefined`: as many as the memory allows. */
  maxSeries: number | undefined;
  clientApplication: string | undefined;
  stateDir: string;
  logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal';
  logFormat: 'auto' | 'pretty' | 'json' | 'journal';
}

export type { ListenAddress };
