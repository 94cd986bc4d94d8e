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
import { readRegularFileSync } from '../base/regular-file.ts';
import { ownCertificate } from './own-certificate.ts';
import type { Endpoint } from './protocol.ts';
import { BOUNDED_TRANSPORT } from './transport.ts';
import { TrustFolder } from './trust-folder.ts';

/** node-opcua's own, with the services of subscriptions as the specification has them: what is acknowledged, and when, is decided here. */
type RawSession = ClientSession & ClientSessionRawSubscriptionService & ClientSessionPublishService;

const ANSWER_MS = 15_000;
/** A server that hears nothing for so long ends the session. */
const SESSION_MS = 120_000;
const MAX_PASSWORD_BYTES = 4096;
/** As node-opcua words it; `BoundedTransport` sets both limits. */
const TOO_LARGE = /max (chunk count|message size) exceeded/;
/** Operations of one request; small controllers accept no more. */
const MAX_OPERATIONS = 100;
/** References of one Browse response; the rest follows by continuation point. */
const MAX_REFERENCES = 1_000;

/** A server's certificate that nobody has trusted yet. */
export class UntrustedServer extends Error {
  readonly certificate: Buffer;

  constructor(certificate: Buffer) {
    super('the certificate of the server is not trusted');
    this.certificate = certificate;
  }
}

/** A notification that exceeds the limits of the transport: the server sends it again to whoever takes the subscription over. */
export class OversizedMessage extends Error {
  constructor() {
    super('the server sends messages that are too large');
  }
}

/** One connection with one session on it. It is never mended: what follows a failure is another one. */
export class Session {
  readonly raw: RawSession;
  /** When the server's certificate ends; left out where it shows none. */
  readonly certificateEndsMs: number | undefined;
  readonly #client: OPCUAClient;
  readonly #broken = Promise.withResolvers<never>();
  #operations = MAX_OPERATIONS;
  /** Whether a notification has exceeded the limits: node-opcua fails its request, then ends the connection. */
  #isOversized = false;

  private constructor(client: OPCUAClient, raw: RawSession, certificate: Buffer | undefined) {
    this.#client = client;
    this.raw = raw;
    this.certificateEndsMs =
      certificate && crypto_utils.exploreCertificate(certificate).tbsCertificate.validity.notAfter.getTime();
    this.#broken.promise.catch(() => {});
    const lost = () =>
      this.#broken.reject(this.#isOversized ? new OversizedMessage() : new Error('the connection was lost'));
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
      ...BOUNDED_TRANSPORT,
      requestedSessionTimeout: SESSION_MS,
      transportTimeout: ANSWER_MS,
      defaultTransactionTimeout: ANSWER_MS,
      // What ends with a session is said when it is closed.
      keepPendingSessionsOnDisconnect: true,
    });
    try {
      await client.connect(endpoint.url);
      const raw = (await client.createSession(userOf(endpoint))) as RawSession;
      raw.requestedMaxReferencesPerNode = MAX_REFERENCES;
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
    return this.#notification((callback) => this.raw.publish(request, callback));
  }

  republish(subscriptionId: number, retransmitSequenceNumber: number): Promise<RepublishResponse> {
    const request = new RepublishRequest({ subscriptionId, retransmitSequenceNumber });
    return this.#notification((callback) => this.raw.republish(request, callback));
  }

  #notification<Response>(ask: (callback: Callback<Response>) => void): Promise<Response> {
    return promised((callback) =>
      ask((error, response) => {
        this.#isOversized ||= TOO_LARGE.test(error?.message ?? '');
        callback(this.#isOversized ? new OversizedMessage() : error, response);
      }),
    );
  }

  /**
   * Runs a service for all items, in requests as large as the server accepts (OPC 10000-5, OperationLimits): a request that it rejects as
   * too large is sent again in halves, and so are all later ones. Rejects with any other error of `ask`.
   */
  async inBatches<Item, Result>(
    all: readonly Item[],
    ask: (some: readonly Item[]) => Promise<Result>,
  ): Promise<Result[]> {
    const results: Result[] = [];
    for (let from = 0; from < all.length; ) {
      const some = all.slice(from, from + this.#operations);
      try {
        results.push(await ask(some));
        from += some.length;
      } catch (error) {
        if (some.length === 1 || !/BadTooManyOperations/.test(String(error))) throw error;
        this.#operations = Math.ceil(some.length / 2);
      }
    }
    return results;
  }

  /** Without what its items hold now: that has been told. */
  transfer(subscriptionId: number): Promise<TransferSubscriptionsResponse> {
    const request = { subscriptionIds: [subscriptionId], sendInitialValues: false };
    return promised((callback) => this.raw.transferSubscriptions(request, callback));
  }
}

type Callback<Answer> = (error: Error | null, answer?: Answer) => void;

function promised<Answer>(ask: (callback: Callback<Answer>) => void): Promise<Answer> {
  return new Promise((resolve, reject) =>
    ask((error, answer) => (answer === undefined ? reject(error ?? new Error('no answer')) : resolve(answer))),
  );
}

function userOf({ user }: Endpoint): UserIdentityInfo {
  if (user === undefined) return { type: UserTokenType.Anonymous };
  if ('certFile' in user) {
    return {
      type: UserTokenType.Certificate,
      certificateData: crypto_utils.convertPEMtoDER(readRegularFileSync(user.certFile).bytes.toString('latin1')),
      privateKey: readRegularFileSync(user.keyFile).bytes.toString('latin1'),
    };
  }
  return { type: UserTokenType.UserName, userName: user.name, password: passwordOf(user.passwordFile) };
}

export function passwordOf(file: string | undefined): string {
  if (file === undefined) return '';
  return readRegularFileSync(file, MAX_PASSWORD_BYTES)
    .bytes.toString()
    .replace(/\r?\n$/, '');
}
