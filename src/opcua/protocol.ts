/**
 * Protocol between the agent and the OPC UA reader: lines of JSON on the reader's standard input and output. The agent
 * imports only this file from the folder, because the others load node-opcua.
 *
 *   agent                         reader                          server
 *     │──── start: what to read ───►│──── session, subscription ───►│
 *     │                             │◄─── notification 17 ──────────│
 *     │◄─── values, ordinal 1 ──────│
 *     │  (on disk)                  │
 *     │──── stored: 1 ─────────────►│──── acknowledges 17 ─────────►│
 */

/** Interval between heartbeats of the reader, in milliseconds. */
export const HEARTBEAT_MS = 5_000;
/** Maximum number of values per line. */
export const MAX_VALUES_PER_LINE = 5_000;

export type SecurityPolicyName = 'None' | 'Basic256Sha256' | 'Aes128_Sha256_RsaOaep' | 'Aes256_Sha256_RsaPss';

/** A certificate and its key, as files. */
export interface KeyPairFiles {
  certFile: string;
  keyFile: string;
}

export interface Endpoint {
  url: string;
  policy: SecurityPolicyName;
  mode: 'None' | 'Sign' | 'SignAndEncrypt';
  /** This gateway's certificate, or a folder in which one is created. */
  identity: KeyPairFiles | { folder: string };
  /** Folder of trusted server certificates. */
  trustFolder: string;
  /** Default: an anonymous user. */
  user?: { name: string; passwordFile?: string } | KeyPairFiles;
}

/** A monitored node. Values with equal settings share an item. */
export interface Item {
  /** `ns=INDEX;…` or `nsu=URI;…`. */
  node: string;
  /** Index of an array element. */
  index?: number;
  /** Member of a structure: names and element indices, separated by dots. */
  member?: string;
  /** 0 requests the server's fastest rate. */
  samplingMs: number;
  queueSize: number;
  trigger: 'status' | 'value' | 'timestamp';
  /** Absolute dead band, in the server's unit. */
  deadband?: number;
}

/** A subscription that may still exist on the server. */
export interface KeptSubscription {
  id: number;
  /** Start time of the server. After a server restart, a different subscription may have the same ID. */
  serverStartMs: number;
  items: readonly KeptItem[];
  /** Sequence number of the latest message on disk. */
  stored?: number;
}

/** `key`: settings with which the server monitors the item. */
export type KeptItem = readonly [key: string, handle: number, monitoredItem: number];

export interface ReaderTask {
  endpoint: Endpoint;
  /** Empty if the connection is used only for questions. */
  items: readonly Item[];
  kept?: KeptSubscription;
}

export type AgentLine =
  | { start: ReaderTask }
  /** Everything up to the message with this ordinal is on disk. */
  | { stored: number }
  | { ask: number; question: Question }
  /** Inspects a server. A process that receives this line receives no other lines. */
  | { inspect: Inspection }
  /** The subscription is no longer needed. */
  | { leave: true };

export type Inspection = Pick<Endpoint, 'url' | 'identity'>;

export type Inspected =
  | {
      /** Path of this gateway's certificate. */
      own: string;
      /** Server certificate, DER in Base64. */
      certificate?: string;
      endpoints: readonly { policy: string; mode: string; users: readonly string[] }[];
    }
  | { failed: string; hint?: string };

export type Question =
  /** Reads each item of the task once. */
  | { read: readonly Item[] }
  /** Browses below nodes or paths. Default: below Objects. */
  | { browse: readonly string[] }
  /** Reads a page of past values. */
  | { history: HistorySpan }
  /** Writes a value. The response contains no values. */
  | { write: WriteOrder };

/** A number to write to the value of a node. */
export interface WriteOrder {
  node: string;
  raw: number;
}

/** Past values of an item after `fromMs` and before `untilMs`. */
export interface HistorySpan {
  item: Item;
  fromMs: number;
  untilMs: number;
  /** Continuation point of the previous page, in Base64. */
  point?: string;
}

export interface HistoryPage {
  past: readonly Reading[];
  /** Omitted on the last page. */
  point?: string;
  /** Reason why the server did not return values. */
  problem?: string;
}

/** Number, boolean or string. */
export type RawValue = number | string | boolean;

/** Value or `null`; time in milliseconds or `null`; severity. */
export type Reading = readonly [raw: RawValue | null, timeMs: number | null, status: Status, detail?: ReadingDetail];

interface ReadingDetail {
  /** The server discarded earlier values, because its queue was full. */
  overflow?: true;
  /** Reason why there is no value. */
  problem?: string;
  hint?: string;
}

/** Index of the item in the task, and its reading. */
export type ReadValue = readonly [item: number, ...Reading];

/** Severity of a status code: good, uncertain or bad. */
export type Status = 0 | 1 | 2;

export interface FoundNode {
  /** Node ID with its namespace URI. */
  node: string;
  index?: number;
  member?: string;
  /** Names below Objects, separated by `/`. */
  path: string;
  sample: string;
}

export type ReaderLine =
  | { connected: true; certificateEndsMs?: number }
  | { connected: false; problem: string; hint?: string }
  | { subscription: Omit<KeptSubscription, 'stored'>; isNew: boolean }
  /** Part of a message with more than `MAX_VALUES_PER_LINE` values. */
  | { values: readonly ReadValue[] }
  /**
   * Remaining values of a message. `ordinal` counts this process's messages; `sequence` is the server's sequence
   * number.
   */
  | { values: readonly ReadValue[]; ordinal: number; subscription: number; sequence: number }
  /** Rejected items with reasons; replaces the previous list. */
  | { refused: readonly (readonly [item: number, why: string])[] }
  /** Items whose history this user is allowed to read. This line is sent once per session, after the subscription. */
  | { history: readonly number[] }
  /** Number of messages with values that the server discarded. This line is sent before the next values. */
  | { lost: number }
  /**
   * The server sent a message that exceeds this size, in bytes. The message was discarded, and its subscription is
   * replaced.
   */
  | { oversized: number }
  /** Sent every `HEARTBEAT_MS`. */
  | { alive: true }
  | { answer: number; values: readonly ReadValue[] }
  | { answer: number; page: HistoryPage }
  | { answer: number; found: FoundNode }
  | { answer: number; done: number; total: number }
  | { answer: number; failed: string; hint?: string }
  | { answer: number; end: true }
  | { inspected: Inspected };
