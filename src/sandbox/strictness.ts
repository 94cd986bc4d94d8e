/**
 * Where the sandbox takes more than the letter of the spec, because clients in the field send it: each rule makes one of
 * these a refusal. Which is the default, and why, stands in docs/sandbox.md.
 */
export const STRICT_RULES = {
  redirect: { spec: '5.3', lax: 'any-port', strict: 'exact', what: 'a redirect URI on loopback may name any port' },
  'basic-auth': {
    spec: '5.2',
    lax: 'encoded',
    strict: 'literal',
    what: 'percent-encoded key and secret in a Basic header (RFC 6749 2.3.1)',
  },
  'client-user': { spec: '1', lax: 'any', strict: 'own', what: 'key of one subscription with the user of another' },
  'webhook-address': { spec: '2.4', lax: 'any', strict: 'public', what: 'webhook addresses that are not public' },
  'webhook-members': {
    spec: '4.5',
    lax: 'ignored',
    strict: 'refused',
    what: 'unknown members and filters of webhooks and their deliveries',
  },
  properties: {
    spec: '6.3',
    lax: 'any',
    strict: 'known',
    what: 'names in `properties` that the event type does not have, and event types without a filter',
  },
  changers: {
    spec: '5.9',
    lax: 'anyone',
    strict: 'named',
    what: 'who changes members (an admin of the tenant), webhooks and their secrets (the technical user)',
  },
  'json-type': { spec: '4.3', lax: 'any', strict: 'json', what: 'content type of JSON bodies' },
  state: { spec: '5.3', lax: 'optional', strict: 'required', what: '`state` at sign-in' },
  pkce: { spec: '5.4', lax: 'optional', strict: 'required', what: 'PKCE at sign-in' },
} as const satisfies Readonly<Record<string, StrictChoice>>;

interface StrictChoice {
  spec: string;
  /** What `--assume` calls the default, and what it calls the refusal. */
  lax: string;
  strict: string;
  what: string;
}

export type StrictRule = keyof typeof STRICT_RULES;

export const STRICT_RULE_NAMES = Object.keys(STRICT_RULES) as readonly StrictRule[];

/** Which rules are in force. */
export type Strictness = ReadonlySet<StrictRule>;
