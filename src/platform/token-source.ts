/** Access token that is in use by one call. */
export interface Lease {
  readonly accessToken: string;
  /**
   * Records the status of the response. `repeats`: number of retries of the call so far. After a 401, returns the delay
   * before the next retry with the same token, in milliseconds, because a server may not accept a new token immediately.
   * If it returns `undefined`, the token is not used again.
   */
  responded(status: number, repeats?: number): number | undefined;
  /** Ends the use of the token. Must be called exactly once. */
  release(): void;
}

/** Source of access tokens: the session of the technical user or of a person. */
export interface TokenSource {
  /**
   * Returns a token that will still be valid on arrival. Waits for a renewal in progress. Throws `platform.no_session`
   * (retryable) immediately if there is no token and none is being requested.
   */
  lease(signal?: AbortSignal): Promise<Lease>;
}
