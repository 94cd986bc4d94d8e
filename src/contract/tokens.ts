/** Platform 2.1: what every token endpoint answers. The client uses `created_at` only to verify the `Date` of the response: clocks differ. */
export interface TokenResponse {
  access_token: string;
  token_type: string;
  /** Seconds; 660 per platform 8. */
  expires_in: number;
  refresh_token: string;
  /** Unix time, seconds. */
  created_at: number;
}

/** Platform 8: fixed, not extended by use. */
export const ACCESS_TOKEN_LIFE_S = 660;
/** Platform 8: at most. */
export const REFRESH_TOKEN_LIFE_S = 24 * 3600;
/** Platform 4.1: password and refresh grants, on {base_url}. */
export const TOKEN_PATH = '/oauth/token';
export const REVOKE_PATH = '/oauth/revoke';
/** Platform 4.1: the identity application, on {web_url}. */
export const IDENTITY_PATHS = '/app/id/';
export const SIGN_IN_PATH = '/app/id/sign_in';
export const IDENTITY_TOKEN_PATH = '/app/id/oauth/token';
export const IDENTITY_REVOKE_PATH = '/app/id/oauth/revoke';

/** RFC 6749 section 5.2: not in the spec, likely (platform 10.3). */
export interface OAuthErrorBody {
  error: string;
  error_description?: string;
}
