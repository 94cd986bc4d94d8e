import { readDuration } from '../../base/quantity.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable, printableAddress } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SecurityPolicyName } from '../../opcua/protocol.ts';
import { CONNECTION_MEMBERS } from '../messages/message-members.ts';
import type { SourceKind } from '../source-kind.ts';
import {
  inspectServer,
  type OpcuaSpec,
  type OpcuaValue,
  READER_MISSING,
  readerCommand,
  scanOpcua,
} from './reader-process.ts';

const PORT = 4840;
const TRUST_FOLDER = 'opcua-trust';
const QUEUE = 100;
const HISTORY = '1d';
/** Security policy names used in tags.yaml and in the standard. */
const POLICIES: Readonly<Record<string, SecurityPolicyName>> = {
  None: 'None',
  Basic256Sha256: 'Basic256Sha256',
  Aes128Sha256RsaOaep: 'Aes128_Sha256_RsaOaep',
  Aes256Sha256RsaPss: 'Aes256_Sha256_RsaPss',
};
const NODE_HINT = 'use a value such as "nsu=urn:example:line1;s=Line1.Flow" or "ns=2;s=Line1.Flow"';
const { username, password_file, cert, key } = CONNECTION_MEMBERS;

/** An OPC UA server: `cell: { opcua: "opc.tcp://10.0.0.5:4840" }`. */
export const OPCUA: SourceKind<OpcuaSpec, OpcuaValue> = {
  kind: 'opcua',
  example: 'opcua: opc.tcp://…',
  everyMs: 1_000,
  reportsOnlyChanges: true,
  runsProgram: true,
  sourceMembers: {
    opcua: {
      type: 'string',
      title: 'the address of an OPC UA server',
      description: 'OPC UA server to subscribe to.',
      examples: ['opc.tcp://10.0.0.5:4840'],
    },
    security: {
      enum: Object.keys(POLICIES),
      default: 'Basic256Sha256',
      description: 'OPC UA: security policy. None disables authentication and encryption.',
    },
    mode: {
      enum: ['Sign', 'SignAndEncrypt'],
      default: 'SignAndEncrypt',
      description: 'OPC UA: whether messages are signed, or signed and encrypted.',
    },
    cert: cert!,
    key: key!,
    trust: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      default: TRUST_FOLDER,
      title: 'a folder',
      description: 'OPC UA: folder with trusted server certificates (tagferry sources trust).',
      examples: [TRUST_FOLDER],
    },
    username: username!,
    password_file: password_file!,
    user_cert: {
      ...cert!,
      description: 'OPC UA: PEM file of the user certificate, instead of a user name.',
      examples: ['reader.pem'],
    },
    history: {
      ...DURATION_SCHEMA,
      description: `OPC UA: longest gap that is filled from the server's history; 0 disables this. Default: ${HISTORY}.`,
      examples: ['1d'],
    },
    user_key: { ...key!, description: 'OPC UA: PEM file of the key for `user_cert`.', examples: ['reader-key.pem'] },
  },
  valueMembers: {
    node: {
      type: 'string',
      minLength: 3,
      maxLength: 1024,
      title: 'the ID of a node',
      description:
        'OPC UA: node ID of the value. A namespace URI (nsu=) stays valid if the server renumbers its namespaces.',
      examples: ['nsu=urn:example:line1;s=Line1.Flow', 'ns=2;s=Line1.Flow'],
    },
    index: {
      type: 'integer',
      minimum: 0,
      maximum: 1_000_000,
      title: 'an array index',
      description: 'OPC UA: array index, from 0.',
      examples: [3],
    },
    member: {
      type: 'string',
      pattern: '^[^.]+(\\.[^.]+)*$',
      maxLength: 256,
      title: 'the name of a member',
      description:
        'OPC UA: member of a structure that contains the number. Separate nested members and element indices with dots.',
      examples: ['Speed', 'Axes.0.Position'],
    },
    queue: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      default: QUEUE,
      title: 'a number of values',
      description: 'OPC UA: number of values the server queues while the agent is disconnected.',
      examples: [600],
    },
    trigger: {
      enum: ['value', 'status', 'timestamp'],
      default: 'value',
      description: 'OPC UA: changes the server reports: status only, status and value, or status, value and timestamp.',
    },
  },
  needs: { member: 'node', example: 'node: "ns=2;s=Line1.Flow"' },
  missing: () => (readerCommand() === undefined ? READER_MISSING : undefined),
  readSource(raw, report) {
    const url = readUrl(String(raw.opcua), report);
    const user = readUser(raw, report);
    const identity = readPair('cert', 'key', raw, report);
    const history = readDuration(String(raw.history ?? HISTORY));
    if ('reason' in history) {
      report.problem('history', `history "${printable(String(raw.history))}" ${history.reason}`, 'set for example 1d');
      return undefined;
    }
    if (url === undefined || user === 'wrong' || identity === 'wrong') return undefined;
    const security = String(raw.security ?? 'Basic256Sha256');
    if (security === 'None' && raw.mode !== undefined) {
      report.problem('mode', `mode "${raw.mode}" cannot be combined with security: None`, 'remove it');
      return undefined;
    }
    if (security === 'None' && user !== undefined) {
      const reason = 'security: None can expose the password on the network';
      report.warning('security', reason, 'set security: Basic256Sha256 if the server supports it');
    }
    if (readerCommand() === undefined)
      report.warning('opcua', READER_MISSING.problem, 'run apt install tagferry-opcua');
    return {
      url,
      policy: POLICIES[security]!,
      mode: security === 'None' ? 'None' : ((raw.mode ?? 'SignAndEncrypt') as OpcuaSpec['mode']),
      historyMs: history.value,
      trustFolder: report.pathOf(String(raw.trust ?? TRUST_FOLDER)),
      ...(identity === undefined ? {} : { identity }),
      ...(user === undefined ? {} : { user }),
    };
  },
  readValue(raw, report) {
    const node = String(raw.node);
    if (!/^(ns=\d{1,5};|nsu=[^;]+;)?(i=\d{1,10}|s=.+|g=[0-9a-fA-F-]{36}|b=[A-Za-z0-9+/]+=*)$/.test(node)) {
      report.problem('node', `node "${printable(node)}" is not a node ID`, NODE_HINT);
      return undefined;
    }
    return {
      node,
      queueSize: Number(raw.queue ?? QUEUE),
      trigger: (raw.trigger ?? 'value') as OpcuaValue['trigger'],
      ...(raw.index === undefined ? {} : { index: Number(raw.index) }),
      ...(raw.member === undefined ? {} : { member: String(raw.member) }),
    };
  },
  writing: {
    problem: ({ index, member }) =>
      index === undefined && member === undefined
        ? undefined
        : { reason: 'a part of an array or structure cannot be written', instead: 'remove writable' },
    storedFor: (_, raw) => (Number.isFinite(raw) ? raw : undefined),
    targetsOf({ url }, { node }) {
      const { host, port } = placeOf(url);
      return [`${host.toLowerCase()} ${port} ${node.replace(/^ns=0+;/, '')}`];
    },
  },
  placeOf: ({ url }) => placeOf(url),
  addressOf: (_, { node, index, member }) =>
    `${node}${index === undefined ? '' : ` [${index}]`}${member === undefined ? '' : ` ${member}`}`,
  async open(context) {
    const { OpcuaSource } = await import('./opcua-source.ts');
    return new OpcuaSource(context, await context.notes());
  },
  inspectServer,
  scan: scanOpcua,
};

function placeOf(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || PORT) };
}

function readUrl(text: string, report: MemberReport): string | undefined {
  const url = URL.parse(text);
  const isServer = url !== null && url.protocol === 'opc.tcp:' && url.hostname !== '';
  if (isServer && url.username === '' && url.password === '') return text;
  const problem = isServer ? 'contains a user name' : 'is not an OPC UA server address';
  const instead = 'use an address such as opc.tcp://10.0.0.5:4840, and set username:';
  report.problem('opcua', `"${printableAddress(text)}" ${problem}`, instead);
  return undefined;
}

function readUser(raw: Members, report: MemberReport): OpcuaSpec['user'] | 'wrong' {
  const pair = readPair('user_cert', 'user_key', raw, report);
  if (pair === 'wrong') return 'wrong';
  if (pair !== undefined && raw.username !== undefined) {
    report.problem('username', 'username and user_cert are mutually exclusive', 'remove one of them');
    return 'wrong';
  }
  if (raw.password_file !== undefined && raw.username === undefined) {
    report.problem('password_file', 'password_file requires a user name', 'add username:');
    return 'wrong';
  }
  if (raw.username === undefined) return pair;
  const file = raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) };
  return { name: String(raw.username), ...file };
}

/** Parses the paths of a certificate and its key. Requires both or neither. */
function readPair(
  certificate: 'cert' | 'user_cert',
  keyMember: 'key' | 'user_key',
  raw: Members,
  report: MemberReport,
): { certFile: string; keyFile: string } | 'wrong' | undefined {
  const [certFile, keyFile] = [raw[certificate], raw[keyMember]];
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined) {
    const [given, missing] = certFile === undefined ? [keyMember, certificate] : [certificate, keyMember];
    report.problem(given, `${given} requires ${missing}`, `add ${missing}: with its file`);
    return 'wrong';
  }
  return {
    certFile: report.pemPathOf(certificate, String(certFile), 'certificate'),
    keyFile: report.pemPathOf(keyMember, String(keyFile), 'key'),
  };
}
