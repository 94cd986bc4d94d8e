/**
 * Response of every token endpoint (platform 2.1). Because clocks differ, the client uses `created_at` only to verify
 * the `Date` of the response.
 */
export interface TokenResponse {
  access_token: string;
  token_type: string;
  /** In seconds; 660 (platform 8). */
  expires_in: number;
  refresh_token: string;
  /** Unix time, in seconds. */
  created_at: number;
}

/** Fixed lifetime, which is not extended by use (platform 8). */
export const ACCESS_TOKEN_LIFE_S = 660;
/** Maximum lifetime (platform 8). */
export const REFRESH_TOKEN_LIFE_S = 24 * 3600;
/** Password and refresh grants, on {base_url} (platform 4.1). */
export const TOKEN_PATH = '/oauth/token';
export const REVOKE_PATH = '/oauth/revoke';
/** Identity application, on {web_url} (platform 4.1). */
export const IDENTITY_PATHS = '/app/id/';
export const SIGN_IN_PATH = '/app/id/sign_in';
export const IDENTITY_TOKEN_PATH = '/app/id/oauth/token';
export const IDENTITY_REVOKE_PATH = '/app/id/oauth/revoke';

/** RFC 6749 section 5.2. Not in the specification, but likely (platform 10.3). */
export interface OAuthErrorBody {
  error: string;
  error_description?: string;
}
