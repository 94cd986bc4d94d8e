/**
 * Protocol between the agent and the OPC UA reader: lines of JSON on the reader's standard input and output. The agent
 * imports only this file from the folder, because the others load node-opcua.
 *
 *   agent                         reader                          server
 *     │──── open: what to read ────►│──── session, subscription ───►│
 *     │                             │◄─── notification 17 ──────────│
 *     │◄─── values, message 17 ─────│
 *     │  (on disk)                  │
 *     │──── stored: 17 ────────────►│──── acknowledges 17 ─────────►│
 *     │◄─── disconnected ───────────│
 *     │──── open: what to read, the subscription, and its latest message on disk
 */

/** Interval between heartbeats of the reader, in milliseconds. */
export const HEARTBEAT_MS = 5_000;
/** Maximum number of values per line. */
export const MAX_VALUES_PER_LINE = 5_000;
/**
 * Maximum size of a message from a server, in bytes. A value uses 7 to 22 bytes in a message and up to 300 bytes of
 * memory, so the largest message requires about 30 MB.
 */
export const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;

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
}

/** A subscription that may still exist on the server. */
export interface KeptSubscription {
  id: number;
  /** Start time of the server. After a server restart, a different subscription may have the same ID. */
  serverStartMs: number;
  items: readonly (readonly [handle: number, item: MonitoredItem])[];
}

/** Item as the server monitors it. */
export interface MonitoredItem {
  /** Requested settings. */
  key: string;
  monitoredItem: number;
  /** As revised by the server. */
  samplingMs: number;
  queueSize: number;
}

export type MessageId = readonly [subscription: number, sequence: number];

/** One session. */
export interface ReaderTask {
  endpoint: Endpoint;
  items: readonly Item[];
  /** Namespace URIs by index in the first session, to which `ns=` node IDs refer. */
  namespaces: readonly string[];
  kept?: KeptSubscription | undefined;
  /** Latest message on disk. The agent has received no later one. */
  stored?: MessageId | undefined;
  /** Whether the subscription is deleted with the session. */
  isTest: boolean;
}

export type AgentLine =
  | { open: ReaderTask }
  /** Everything up to this message is on disk. */
  | { stored: MessageId }
  | { ask: number; question: Question };

/** The first three are for a reader with a session. The others open a connection of their own. */
export type Question =
  | { read: Item }
  | { history: HistorySpan }
  /** Writes a number to the value of a node. */
  | { write: { node: string; raw: number } }
  | { inspect: Pick<Endpoint, 'url' | 'identity'> }
  /** Browses below nodes or paths. Default: below Objects. */
  | { scan: Endpoint; below: readonly string[] };

/** Past values of an item after `fromMs` and before `untilMs`. */
export interface HistorySpan {
  item: Item;
  fromMs: number;
  untilMs: number;
  /** Continuation point of the previous page, in Base64. */
  point?: string | undefined;
}

export interface HistoryPage {
  past: readonly Reading[];
  /** Omitted on the last page. */
  point?: string;
  /** Reason why the server did not return values. */
  problem?: string;
}

export interface Inspected {
  /** Path of this gateway's certificate. */
  own: string;
  /** Server certificate, DER in Base64. */
  certificate?: string;
  endpoints: readonly { policy: string; mode: string; users: readonly string[] }[];
}

export interface FoundNode {
  /** Node ID with its namespace URI. */
  node: string;
  index?: number;
  member?: string;
  /** Names below Objects, separated by `/`. */
  path: string;
  sample: string;
}

/** Number, boolean or string. */
export type RawValue = number | string | boolean;

/** Severity of a status code: good, uncertain or bad. */
export type Status = 0 | 1 | 2;

/** Reason why there is no value, or why a request failed. */
export interface Problem {
  problem: string;
  hint?: string;
}

/** Value or `null`; time in milliseconds or `null`; severity. `overflow`: the server discarded earlier values. */
export type Reading = readonly [
  raw: RawValue | null,
  timeMs: number | null,
  status: Status,
  detail?: Partial<Problem> & { overflow?: true },
];

/** Index of the item in the task, and its reading. */
export type ReadValue = readonly [item: number, ...Reading];

/** One line of the answer to a question. The answer to a scan has several lines. */
export interface AnswerLine {
  /** Number of the question. */
  answer: number;
  reading?: Reading;
  page?: HistoryPage;
  inspected?: Inspected;
  found?: FoundNode;
  /** Number of browsed nodes, and of all nodes found so far. */
  progress?: { done: number; total: number };
  failed?: Problem;
  /** Set in the final line of a successful answer. */
  end?: true;
}

/** Index of an item in the task, and a description of the problem. */
export type ItemProblem = readonly [item: number, problem: string];

/** The subscription was created or transferred, or its items have changed. */
export interface SubscriptionLine {
  subscription: KeptSubscription;
  isNew: boolean;
  /** Namespace URIs of the server, by index. */
  namespaces: readonly string[];
  rejected: readonly ItemProblem[];
  /** Items whose history this user is allowed to read. */
  history: readonly number[];
  /** Items for which the server does less than requested. */
  revised: readonly ItemProblem[];
  certificateEndsMs?: number | undefined;
}

export type ReaderLine =
  | SubscriptionLine
  /** Values of a message, or a part of them if `message` is omitted. */
  | { values: readonly ReadValue[]; message?: MessageId }
  /** Number of messages that the server discarded. This line is sent before the next values. */
  | { lost: number }
  /** The session has ended. `isOversized`: the server sent a message of more than `MAX_MESSAGE_BYTES`. */
  | ({ disconnected: true; isOversized: boolean } & Problem)
  /** Sent every `HEARTBEAT_MS`. */
  | { alive: true }
  | AnswerLine;
