import { readFileSync, statSync } from 'node:fs';
import {
  type ClientSession,
  type ClientSessionPublishService,
  type ClientSessionRawSubscriptionService,
  crypto_utils,
  MessageSecurityMode,
  OPCUAClient,
  PublishRequest,
  type PublishResponse,
  RepublishRequest,
  type RepublishResponse,
  SecurityPolicy,
  type SubscriptionAcknowledgement,
  type TransferSubscriptionsResponse,
  type UserIdentityInfo,
  UserTokenType,
} from 'node-opcua-client';
import { ownCertificate } from './own-certificate.ts';
import type { Endpoint } from './protocol.ts';
import { TrustFolder } from './trust-folder.ts';

/** node-opcua's own, with the services of subscriptions as the specification has them: what is acknowledged, and when, is decided here. */
type RawSession = ClientSession & ClientSessionRawSubscriptionService & ClientSessionPublishService;

const ANSWER_MS = 15_000;
/** A server that hears nothing for so long ends the session. */
const SESSION_MS = 120_000;
const MAX_PASSWORD_BYTES = 4096;

/** A server's certificate that nobody has trusted yet. */
export class UntrustedServer extends Error {
  readonly certificate: Buffer;

  constructor(certificate: Buffer) {
    super('the certificate of the server is not trusted');
    this.certificate = certificate;
  }
}

/** One connection with one session on it. It is never mended: what follows a failure is another one. */
export class Session {
  readonly raw: RawSession;
  /** When the server's certificate ends; left out where it shows none. */
  readonly certificateEndsMs: number | undefined;
  readonly #client: OPCUAClient;
  readonly #broken = Promise.withResolvers<never>();

  private constructor(client: OPCUAClient, raw: RawSession, certificate: Buffer | undefined) {
    this.#client = client;
    this.raw = raw;
    this.certificateEndsMs =
      certificate && crypto_utils.exploreCertificate(certificate).tbsCertificate.validity.notAfter.getTime();
    this.#broken.promise.catch(() => {});
    const lost = () => this.#broken.reject(new Error('the connection was lost'));
    client.once('connection_lost', lost);
    client.once('close', lost);
    raw.once('session_closed', () => this.#broken.reject(new Error('the server has ended the session')));
  }

  /** Throws what the server, the network or a file says; `UntrustedServer` where its certificate is unknown. */
  static async open(endpoint: Endpoint): Promise<Session> {
    const { certFile, keyFile, applicationUri } = await ownCertificate(endpoint.identity);
    const trust = new TrustFolder(endpoint.trustFolder);
    const client = OPCUAClient.create({
      applicationName: 'tagferry',
      applicationUri,
      clientName: 'tagferry',
      certificateFile: certFile,
      privateKeyFile: keyFile,
      clientCertificateManager: trust.asStore(),
      securityPolicy: SecurityPolicy[endpoint.policy],
      securityMode: MessageSecurityMode[endpoint.mode],
      // Servers name themselves by what they are called inside, which a gateway behind a router does not reach.
      endpointMustExist: false,
      connectionStrategy: { maxRetry: 0 },
      requestedSessionTimeout: SESSION_MS,
      transportTimeout: ANSWER_MS,
      defaultTransactionTimeout: ANSWER_MS,
      // What ends with a session is said when it is closed.
      keepPendingSessionsOnDisconnect: true,
    });
    try {
      await client.connect(endpoint.url);
      const raw = (await client.createSession(userOf(endpoint))) as RawSession;
      const [certificate] = [client.serverCertificate].flat();
      return new Session(client, raw, endpoint.policy === 'None' ? undefined : certificate);
    } catch (error) {
      await client.disconnect().catch(() => {});
      throw trust.refused ? new UntrustedServer(trust.refused) : error;
    }
  }

  /** Rejects when the connection or the session is over. */
  get broken(): Promise<never> {
    return this.#broken.promise;
  }

  /** Never rejects: what is not there any more need not be closed. */
  async close(deleteSubscriptions: boolean): Promise<void> {
    await Promise.race([this.raw.close(deleteSubscriptions), this.broken]).catch(() => {});
    await this.#client.disconnect().catch(() => {});
  }

  publish(acknowledged: readonly Partial<SubscriptionAcknowledgement>[], withinMs: number): Promise<PublishResponse> {
    const request = new PublishRequest({
      requestHeader: { timeoutHint: withinMs },
      subscriptionAcknowledgements: [...acknowledged],
    });
    return promised((callback) => this.raw.publish(request, callback));
  }

  republish(subscriptionId: number, retransmitSequenceNumber: number): Promise<RepublishResponse> {
    const request = new RepublishRequest({ subscriptionId, retransmitSequenceNumber });
    return promised((callback) => this.raw.republish(request, callback));
  }

  /** Without what its items hold now: that has been told. */
  transfer(subscriptionId: number): Promise<TransferSubscriptionsResponse> {
    const request = { subscriptionIds: [subscriptionId], sendInitialValues: false };
    return promised((callback) => this.raw.transferSubscriptions(request, callback));
  }
}

function promised<Answer>(ask: (callback: (error: Error | null, answer?: Answer) => void) => void): Promise<Answer> {
  return new Promise((resolve, reject) =>
    ask((error, answer) => (answer === undefined ? reject(error ?? new Error('no answer')) : resolve(answer))),
  );
}

function userOf({ user }: Endpoint): UserIdentityInfo {
  if (user === undefined) return { type: UserTokenType.Anonymous };
  if ('certFile' in user) {
    return {
      type: UserTokenType.Certificate,
      certificateData: crypto_utils.convertPEMtoDER(readFileSync(user.certFile, 'latin1')),
      privateKey: readFileSync(user.keyFile, 'latin1'),
    };
  }
  return { type: UserTokenType.UserName, userName: user.name, password: passwordOf(user.passwordFile) };
}

function passwordOf(file: string | undefined): string {
  if (file === undefined) return '';
  if (statSync(file).size > MAX_PASSWORD_BYTES) throw new Error(`${file} is too large for a password`);
  return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
}
