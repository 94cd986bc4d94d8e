/**
 * Cases in which the sandbox accepts more than the specification literally allows, because existing clients send such
 * requests. Each `--strict` rule rejects one of these cases, which are described in docs/reference/sandbox.md.
 */
export const STRICT_RULE_NAMES = [
  /** 5.3: loopback redirect URIs with any port. */
  'redirect',
  /** 5.2: percent-encoded key and secret in a Basic header (RFC 6749 section 2.3.1). */
  'basic-auth',
  /** Section 1: the key of one subscription combined with the user of another. */
  'client-user',
  /** 2.4: webhook addresses that are not public. */
  'webhook-address',
  /** 4.5: unknown members and filters of webhooks and their deliveries. */
  'webhook-members',
  /** 6.3: unknown names in `properties`, and `properties` for event types without a filter. */
  'properties',
  /**
   * 5.9: members changed by a user who is not an administrator, and webhooks changed by a user other than the technical
   * user.
   */
  'changers',
  /** 4.3: JSON bodies with a different content type. */
  'json-type',
  /** 5.3: sign-in without `state`. */
  'state',
  /** 5.4: sign-in without PKCE. */
  'pkce',
] as const;

export type StrictRule = (typeof STRICT_RULE_NAMES)[number];

/** The active rules. */
export type Strictness = ReadonlySet<StrictRule>;
