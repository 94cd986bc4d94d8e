import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SecurityPolicyName } from '../../opcua/protocol.ts';
import { MQTT } from '../mqtt/mqtt-kind.ts';
import type { SourceKind } from '../source-kind.ts';
import type { OpcuaSpec, OpcuaValue } from './opcua-spec.ts';
import { READER_MISSING, readerProgram } from './reader-program.ts';

const PORT = 4840;
const TRUST_FOLDER = 'opcua-trust';
const QUEUE = 100;
/** As tags.yaml has them, and as the standard writes them. */
const POLICIES: Readonly<Record<string, SecurityPolicyName>> = {
  None: 'None',
  Basic256Sha256: 'Basic256Sha256',
  Aes128Sha256RsaOaep: 'Aes128_Sha256_RsaOaep',
  Aes256Sha256RsaPss: 'Aes256_Sha256_RsaPss',
};
const { username, password_file, cert, key } = MQTT.sourceMembers;

/** A server of OPC UA: `cell: { opcua: "opc.tcp://10.0.0.5:4840" }`. */
export const OPCUA: SourceKind<OpcuaSpec, OpcuaValue> = {
  kind: 'opcua',
  example: 'opcua: opc.tcp://…',
  everyMs: 1_000,
  tellsChanges: true,
  runsProgram: true,
  inOrder: true,
  sourceMembers: {
    opcua: {
      type: 'string',
      title: 'the address of an OPC UA server',
      description: 'An OPC UA server, of whose nodes changes are subscribed to.',
      examples: ['opc.tcp://10.0.0.5:4840'],
    },
    security: {
      enum: Object.keys(POLICIES),
      default: 'Basic256Sha256',
      description: 'OPC UA: the security policy. None: nothing is proven, and everybody on the network reads along.',
    },
    mode: {
      enum: ['Sign', 'SignAndEncrypt'],
      default: 'SignAndEncrypt',
      description: 'OPC UA: whether messages are encrypted, or signed alone.',
    },
    cert: cert!,
    key: key!,
    trust: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      default: TRUST_FOLDER,
      title: 'a folder',
      description: 'OPC UA: the folder with the certificates of servers that are trusted (tagferry sources trust).',
      examples: [TRUST_FOLDER],
    },
    username: username!,
    password_file: password_file!,
    user_cert: {
      ...cert!,
      description: 'OPC UA: PEM of the certificate by which this gateway is a user, in place of a user name.',
      examples: ['reader.pem'],
    },
    user_key: { ...key!, description: 'OPC UA: PEM of the key of `user_cert`.', examples: ['reader-key.pem'] },
  },
  valueMembers: {
    node: {
      type: 'string',
      minLength: 3,
      maxLength: 1024,
      title: 'the id of a node',
      description: 'OPC UA: the id of the node that holds the value.',
      examples: ['ns=2;s=Line1.Flow'],
    },
    index: {
      type: 'integer',
      minimum: 0,
      maximum: 1_000_000,
      title: 'a place in an array',
      description: 'OPC UA: which element of an array, from 0.',
      examples: [3],
    },
    queue: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      default: QUEUE,
      title: 'a number of values',
      description: 'OPC UA: how many values the server keeps while the agent is away.',
      examples: [600],
    },
    trigger: {
      enum: ['value', 'status', 'timestamp'],
      default: 'value',
      description:
        'OPC UA: what makes the server tell: a change of value or status; of status alone; or of the time, too.',
    },
  },
  needs: { member: 'node', example: 'node: "ns=2;s=Line1.Flow"' },
  missing: () => (readerProgram() === undefined ? READER_MISSING : undefined),
  readSource(raw, report) {
    const url = readUrl(String(raw.opcua), report);
    const user = readUser(raw, report);
    const identity = readPair('cert', 'key', raw, report);
    if (url === undefined || user === 'wrong' || identity === 'wrong') return undefined;
    const security = String(raw.security ?? 'Basic256Sha256');
    if (security === 'None' && raw.mode !== undefined) {
      report.problem('mode', `mode "${raw.mode}" means nothing with security: None`, 'remove it');
      return undefined;
    }
    if (security === 'None' && user !== undefined) {
      const reason = 'security: None may show the password to everybody on the network';
      report.warning('security', reason, 'write security: Basic256Sha256 where the server has it');
    }
    if (readerProgram() === undefined) report.warning('opcua', READER_MISSING.problem, READER_MISSING.hint);
    return {
      url,
      policy: POLICIES[security]!,
      mode: security === 'None' ? 'None' : ((raw.mode ?? 'SignAndEncrypt') as OpcuaSpec['mode']),
      trustFolder: report.pathOf(String(raw.trust ?? TRUST_FOLDER)),
      ...(identity === undefined ? {} : { identity }),
      ...(user === undefined ? {} : { user }),
    };
  },
  readValue(raw, report) {
    const node = String(raw.node);
    if (!/^(ns=\d{1,5};)?(i=\d{1,10}|s=.+|g=[0-9a-fA-F-]{36}|b=[A-Za-z0-9+/]+=*)$/.test(node)) {
      report.problem('node', `node "${printable(node)}" is no id of a node`, 'write for example "ns=2;s=Line1.Flow"');
      return undefined;
    }
    return {
      node,
      queueSize: Number(raw.queue ?? QUEUE),
      trigger: (raw.trigger ?? 'value') as OpcuaValue['trigger'],
      ...(raw.index === undefined ? {} : { index: Number(raw.index) }),
    };
  },
  placeOf({ url }) {
    const { hostname, port } = new URL(url);
    return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || PORT) };
  },
  addressOf: (_, { node, index }) => (index === undefined ? node : `${node} [${index}]`),
  async open(context) {
    const { OpcuaSource } = await import('./opcua-source.ts');
    return new OpcuaSource(context, await context.notes());
  },
  async test(context) {
    const { testOpcua } = await import('./beside.ts');
    return await testOpcua(context);
  },
  async meet(context) {
    const { meetServer } = await import('./beside.ts');
    return await meetServer(context);
  },
  async *scan(context, what) {
    const { scanOpcua } = await import('./beside.ts');
    yield* scanOpcua(context, what);
  },
};

function readUrl(text: string, report: MemberReport): string | undefined {
  const url = URL.parse(text);
  const wrong =
    url === null || url.protocol !== 'opc.tcp:' || url.hostname === ''
      ? 'is no address of an OPC UA server'
      : url.username !== '' || url.password !== ''
        ? 'has a user in it'
        : undefined;
  if (wrong === undefined) return text;
  // What stands before an @ may be a password.
  report.problem(
    'opcua',
    `"${printable(text.replace(/\/\/.*@/, '//…@'))}" ${wrong}`,
    'write for example opc.tcp://10.0.0.5:4840, and username:',
  );
  return undefined;
}

function readUser(raw: Members, report: MemberReport): OpcuaSpec['user'] | 'wrong' {
  const pair = readPair('user_cert', 'user_key', raw, report);
  if (pair === 'wrong') return 'wrong';
  if (pair !== undefined && raw.username !== undefined) {
    report.problem('username', 'there is a user name and a certificate of a user', 'remove one of them');
    return 'wrong';
  }
  if (raw.password_file !== undefined && raw.username === undefined) {
    report.problem('password_file', 'there is a password and no user name', 'add username:');
    return 'wrong';
  }
  if (raw.username === undefined) return pair;
  const file = raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) };
  return { name: String(raw.username), ...file };
}

/** A certificate and its key: both or neither. */
function readPair(
  certificate: 'cert' | 'user_cert',
  itsKey: 'key' | 'user_key',
  raw: Members,
  report: MemberReport,
): { certFile: string; keyFile: string } | 'wrong' | undefined {
  const [certFile, keyFile] = [raw[certificate], raw[itsKey]];
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined) {
    const [there, missing] = certFile === undefined ? [itsKey, certificate] : [certificate, itsKey];
    report.problem(there, `${there} stands without ${missing}`, `add ${missing}: with its file`);
    return 'wrong';
  }
  return {
    certFile: report.pemPathOf(certificate, String(certFile), 'certificate'),
    keyFile: report.pemPathOf(itsKey, String(keyFile), 'key'),
  };
}
