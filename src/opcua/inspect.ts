import { MessageSecurityMode, OPCUAClient, UserTokenType } from 'node-opcua-client';
import { ownCertificate } from './own-certificate.ts';
import type { Inspected, Inspection } from './protocol.ts';
import { BOUNDED_TRANSPORT } from './transport.ts';
import { TrustFolder } from './trust-folder.ts';

const ANSWER_MS = 15_000;
const POLICY = /#([^#]+)$/;

/** What a server offers whoever asks, without a session: nothing of it is proven. */
export async function inspect({ url, identity }: Inspection): Promise<Inspected> {
  let client: OPCUAClient | undefined;
  try {
    const { certFile, keyFile, applicationUri } = await ownCertificate(identity);
    client = OPCUAClient.create({
      applicationName: 'tagferry',
      applicationUri,
      certificateFile: certFile,
      privateKeyFile: keyFile,
      clientCertificateManager: new TrustFolder('').asStore(),
      endpointMustExist: false,
      connectionStrategy: { maxRetry: 0 },
      ...BOUNDED_TRANSPORT,
      transportTimeout: ANSWER_MS,
      defaultTransactionTimeout: ANSWER_MS,
    });
    await client.connect(url);
    const endpoints = await client.getEndpoints();
    const shown = endpoints.find(({ serverCertificate }) => serverCertificate?.length > 0);
    return {
      own: certFile,
      ...(shown ? { certificate: shown.serverCertificate.toString('base64') } : {}),
      endpoints: endpoints.map(({ securityPolicyUri, securityMode, userIdentityTokens }) => ({
        policy: POLICY.exec(securityPolicyUri ?? '')?.[1] ?? 'None',
        mode: MessageSecurityMode[securityMode],
        users: [...new Set((userIdentityTokens ?? []).map(({ tokenType }) => UserTokenType[tokenType]))],
      })),
    };
  } catch (error) {
    return { failed: error instanceof Error ? error.message : String(error) };
  } finally {
    await client?.disconnect().catch(() => {});
  }
}
