import { MessageSecurityMode, type OPCUAClient, UserTokenType } from 'node-opcua-client';
import { createClient } from './client.ts';
import { ownCertificate } from './own-certificate.ts';
import { connectionProblem } from './problems.ts';
import type { Inspected, Inspection } from './protocol.ts';
import { TrustFolder } from './trust-folder.ts';

const POLICY = /#([^#]+)$/;

/** Reads the endpoints of a server without a session. The response is not authenticated. */
export async function inspect({ url, identity }: Inspection): Promise<Inspected> {
  let client: OPCUAClient | undefined;
  try {
    const own = await ownCertificate(identity);
    client = createClient(own, new TrustFolder(''));
    await client.connect(url);
    const endpoints = await client.getEndpoints();
    const withCertificate = endpoints.find(({ serverCertificate }) => serverCertificate?.length > 0);
    return {
      own: own.certFile,
      ...(withCertificate ? { certificate: withCertificate.serverCertificate.toString('base64') } : {}),
      endpoints: endpoints.map(({ securityPolicyUri, securityMode, userIdentityTokens }) => ({
        policy: POLICY.exec(securityPolicyUri ?? '')?.[1] ?? 'None',
        mode: MessageSecurityMode[securityMode],
        users: [...new Set((userIdentityTokens ?? []).map(({ tokenType }) => UserTokenType[tokenType]))],
      })),
    };
  } catch (error) {
    const { problem, hint } = connectionProblem(error, { url });
    return { failed: problem, ...(hint === undefined ? {} : { hint }) };
  } finally {
    await client?.disconnect().catch(() => {});
  }
}
