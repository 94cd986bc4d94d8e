/** One call's hold on an access token. */
export interface Lease {
  readonly accessToken: string;
  /** The platform answered something else than 401: the token works. */
  accepted(): void;
  /** The platform answered 401: this token, and no other, is not handed out again. */
  refused(): void;
  /** The call is over. Once. */
  release(): void;
}

/** Where a call's token comes from: the technical user's session, or a person's. */
export interface TokenSource {
  /**
   * A token that is valid when it arrives. During a renewal it waits for that one; where there is no token and none is
   * being asked for, it throws `platform.no_session` at once (retryable).
   */
  lease(signal?: AbortSignal): Promise<Lease>;
}
