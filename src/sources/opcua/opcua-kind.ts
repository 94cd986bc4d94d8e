import { type ConnectionSpec, placeOf } from '../../broker/broker-spec.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SecurityPolicyName } from '../../opcua/protocol.ts';
import { readDurationMember } from '../duration-member.ts';
import { CONNECTION_MEMBERS, readConnection } from '../messages/message-members.ts';
import type { SourceKind } from '../source-kind.ts';
import {
  inspectServer,
  type OpcuaSpec,
  type OpcuaValue,
  READER_MISSING,
  readerCommand,
  scanOpcua,
} from './reader-process.ts';

const PORTS = { 'opc.tcp:': 4840 };
const TRUST_FOLDER = 'opcua-trust';
const QUEUE = 100;
const HISTORY_MS = 86_400_000;
const HISTORY = { minMs: 0, maxMs: Number.POSITIVE_INFINITY, range: 'at least 0', example: '1d' };
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
      description: `OPC UA: longest gap that is filled from the server's history; 0 disables this. Default: ${HISTORY.example}.`,
      examples: [HISTORY.example],
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
    const connection = readConnection('opcua', raw, report, { ports: PORTS });
    const user = connection && readUser(connection, raw, report);
    const historyMs = readDurationMember(raw, 'history', HISTORY_MS, HISTORY, report);
    if (connection === undefined || user === undefined || historyMs === undefined) return undefined;
    const { certFile, keyFile } = connection;
    const security = String(raw.security ?? 'Basic256Sha256');
    if (security === 'None' && raw.mode !== undefined)
      return report.problem('mode', `mode "${raw.mode}" cannot be combined with security: None`, 'remove it');
    if (security === 'None' && user.user !== undefined) {
      const reason = 'security: None can expose the password on the network';
      report.warning('security', reason, 'set security: Basic256Sha256 if the server supports it');
    }
    if (readerCommand() === undefined)
      report.warning('opcua', READER_MISSING.problem, 'run apt install tagferry-opcua');
    return {
      url: String(raw.opcua),
      policy: POLICIES[security]!,
      mode: security === 'None' ? 'None' : ((raw.mode ?? 'SignAndEncrypt') as OpcuaSpec['mode']),
      historyMs,
      trustFolder: report.pathOf(String(raw.trust ?? TRUST_FOLDER)),
      ...(certFile === undefined || keyFile === undefined ? {} : { identity: { certFile, keyFile } }),
      ...user,
    };
  },
  readValue(raw, report) {
    const node = String(raw.node);
    if (!/^(ns=\d{1,5};|nsu=[^;]+;)?(i=\d{1,10}|s=.+|g=[0-9a-fA-F-]{36}|b=[A-Za-z0-9+/]+=*)$/.test(node))
      return report.problem('node', `node "${printable(node)}" is not a node ID`, NODE_HINT);
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
      const { host, port } = placeOf(url, PORTS);
      return [`${host.toLowerCase()} ${port} ${node.replace(/^ns=0+;/, '')}`];
    },
  },
  placeOf: ({ url }) => placeOf(url, PORTS),
  addressOf: (_, { node, index, member }) =>
    `${node}${index === undefined ? '' : ` [${index}]`}${member === undefined ? '' : ` ${member}`}`,
  async open(context) {
    const { OpcuaSource } = await import('./opcua-source.ts');
    return new OpcuaSource(context, await context.notes());
  },
  inspectServer,
  scan: scanOpcua,
};

/**
 * Returns the user of the session, or an empty object for an anonymous session. Returns `undefined` after reporting a
 * problem.
 */
function readUser(
  { username, passwordFile }: ConnectionSpec,
  raw: Members,
  report: MemberReport,
): Pick<OpcuaSpec, 'user'> | undefined {
  if (URL.parse(String(raw.opcua))?.username)
    return report.problem('opcua', 'the address contains a user name', 'move it to username:');
  const { user_cert: cert, user_key: key } = raw;
  if ((cert === undefined) !== (key === undefined)) {
    const [given, missing] = cert === undefined ? ['user_key', 'user_cert'] : ['user_cert', 'user_key'];
    return report.problem(given!, `${given} requires ${missing}`, `set ${missing} to the path of its PEM file`);
  }
  if (cert === undefined) {
    if (username === undefined) return {};
    return { user: { name: username, ...(passwordFile === undefined ? {} : { passwordFile }) } };
  }
  if (username !== undefined)
    return report.problem('username', 'username and user_cert are mutually exclusive', 'remove one of them');
  const certFile = report.pemPathOf('user_cert', String(cert), 'certificate');
  return { user: { certFile, keyFile: report.pemPathOf('user_key', String(key), 'key') } };
}
