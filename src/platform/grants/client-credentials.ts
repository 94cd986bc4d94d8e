/** API key and secret of a connect subscription; without a secret for PKCE (platform 5.4). */
export interface ClientCredentials {
  clientId: string;
  clientSecret?: string | undefined;
  /** How they are sent (platform 5.2): Basic header with both as they are, with both encoded (RFC 6749 2.3.1), or form fields. */
  clientAuth: 'basic' | 'basic-encoded' | 'body';
}

/** Adds the client credentials to a token request: a header or fields of the form. */
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

/** Whether the literal and the encoded Basic header differ for these credentials. */
export function hasTwoBasicForms({ clientId, clientSecret = '' }: ClientCredentials): boolean {
  return formEncode(clientId) !== clientId || formEncode(clientSecret) !== clientSecret;
}

/** Base64 of key, colon and secret as they are (platform 5.2). */
export function basicCredentials(clientId: string, clientSecret: string): string {
  return `Basic ${Buffer.from(`${clientId}:${clientSecret}`, 'utf8').toString('base64')}`;
}

/** RFC 6749 appendix B. */
export function formEncode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1);
}
