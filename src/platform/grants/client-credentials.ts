/** API key and secret of a connect subscription. No secret is used with PKCE (platform 5.4). */
export interface ClientCredentials {
  clientId: string;
  clientSecret?: string | undefined;
  /**
   * Transmission of the credentials (platform 5.2): an unencoded Basic header, an encoded Basic header (RFC 6749
   * 2.3.1), or form fields.
   */
  clientAuth: 'basic' | 'basic-encoded' | 'body';
}

/** Adds the client credentials to a token request, as a header or as form fields. */
export function authenticateClient(
  { clientId, clientSecret, clientAuth }: ClientCredentials,
  form: URLSearchParams,
  headers: Record<string, string>,
): void {
  if (clientSecret !== undefined && clientAuth !== 'body') {
    const encode = clientAuth === 'basic' ? (text: string) => text : formEncode;
    headers.authorization = basicCredentials(encode(clientId), encode(clientSecret));
    return;
  }
  form.set('client_id', clientId);
  if (clientSecret !== undefined) form.set('client_secret', clientSecret);
}

/** Returns whether the unencoded and the encoded Basic header differ for these credentials. */
export function hasTwoBasicForms({ clientId, clientSecret = '' }: ClientCredentials): boolean {
  return formEncode(clientId) !== clientId || formEncode(clientSecret) !== clientSecret;
}

/** Returns the Basic header: the Base64 encoding of the key, a colon and the secret (platform 5.2). */
export function basicCredentials(clientId: string, clientSecret: string): string {
  return `Basic ${Buffer.from(`${clientId}:${clientSecret}`, 'utf8').toString('base64')}`;
}

/** Encodes text according to RFC 6749 appendix B. */
export function formEncode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1);
}
