/** API key and secret of a connect subscription; without a secret for PKCE (platform 5.4). */
export interface ClientCredentials {
  clientId: string;
  clientSecret?: string | undefined;
  /** How they travel: in a Basic header (recommended, platform 5.2) or in the form. */
  clientAuth: 'basic' | 'body';
}

/** Puts the client's credentials onto a token request: a header or fields of the form. */
export function authenticateClient(
  client: ClientCredentials,
  form: URLSearchParams,
  headers: Record<string, string>,
): void {
  if (client.clientSecret !== undefined && client.clientAuth === 'basic') {
    headers.authorization = basicCredentials(client.clientId, client.clientSecret);
    return;
  }
  form.set('client_id', client.clientId);
  if (client.clientSecret !== undefined) form.set('client_secret', client.clientSecret);
}

/**
 * RFC 6749 section 2.3.1: key and secret are form-encoded, each for itself, before they are joined by a colon. For keys
 * of letters, digits, `-`, `.`, `_` that changes nothing, so servers that forget to decode are served as well.
 */
export function basicCredentials(clientId: string, clientSecret: string): string {
  const text = `${formEncode(clientId)}:${formEncode(clientSecret)}`;
  return `Basic ${Buffer.from(text, 'utf8').toString('base64')}`;
}

function formEncode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1);
}
