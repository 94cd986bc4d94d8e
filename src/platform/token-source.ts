/** Access token that is in use by one call. */
export interface Lease {
  readonly accessToken: string;
  /**
   * Records the status of the response. After a 401, returns whether the call can be repeated with the same token,
   * because a server may not accept a new token immediately. Otherwise, the token is not used again.
   */
  responded(status: number): boolean;
  /** Ends the use of the token. Must be called exactly once. */
  release(): void;
}

/** Source of access tokens: the session of the technical user or of a person. */
export interface TokenSource {
  /**
   * Returns a token that will still be valid on arrival. Waits for a renewal in progress, and while a new token is
   * retried after a 401. Throws `platform.no_session` (retryable) immediately if there is no token and none is being
   * requested.
   */
  lease(signal?: AbortSignal): Promise<Lease>;
}
