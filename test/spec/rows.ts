/**
 * Each section of docs/platform.md, each row of its tables and each point of its lists, and a test that is about it: file below test/, then
 * its title. `sections.test.ts` finds what the page has and this table lacks, and what this table names and no file has.
 */
export const ROWS: Readonly<Record<string, string>> = {
  '1': 'spec/1-service: 1 the site has objects of the kind that the interface names: %s',
  '1 People sign up in':
    'sandbox/surface: sign-up, a confirmed address, a connect subscription, and its key and user work',
  '1 Machines are technical users,': 'spec/1-service: 1 a machine authenticates as its technical user',
  '1 Programs of others act':
    'spec/1-service: 1 a third-party application reads what its user may read, by the user’s access token',
  '1 What happens is pushed': 'spec/1-service: 1 notifications are pushed to the customer’s address as JSON by POST',

  '2.1': 'spec/2-records: 2.1 %s answers the five fields, token_type Bearer and expires_in 660',
  '2.2': 'spec/2-permissions: 2.2 the types are disjoint: %s alone implies no other',
  '2.2 v1 body: permission_type (array;': 'spec/2-permissions: 2.2 permission_type is a list of values',
  '2.2 v1 records: one for':
    'spec/2-permissions: 2.2 v1 records are one for each type, with ids of text: the object’s plus 1, 2 and 4',
  '2.2 v2: permission_types (array), assignable':
    'spec/2-permissions: 2.2 a v2 record has an integer id and a permission_types list',
  '2.2 Inheritance: a permission on':
    'spec/2-permissions: 2.2 %s on an instrumentation is had on every asset assigned to it',
  '2.3': 'spec/2-records: 2.3 there is one for the connect subscription, with an id and a name',
  '2.4': 'spec/2-records: 2.4 has url, event_types, properties, disabled and, where it is created, a secret',
  '2.5': 'spec/2-records: 2.5 has an id and a status, and the payload that was sent',
  '2.6': 'spec/2-records: 2.6 a v2 label has %s, here %j, and not %j',
  '2.7': 'sandbox/surface: answers for %s with what the contents of 6.3 show',

  '3.1': 'spec/3-states: 3.1 a refresh token is valid for 24 hours, to the second',
  '3.2': 'spec/3-states: 3.2 that fails for more than two weeks is disabled, and the contact person is notified',
  '3.3': 'spec/3-states: 3.3 after 16 attempts it has failed and is not tried again',
  '3.4': 'spec/3-states: 3.4 the edge device status offline is set automatically',

  '4.1': 'spec/4-tokens: 4.1 takes application/x-www-form-urlencoded and returns JSON',
  '4.1 POST {base_url}/oauth/token': 'spec/4-tokens: 4.1 the password grant takes client credentials %s',
  '4.1 POST {base_url}/oauth/revoke': 'spec/4-tokens: 4.1 takes client credentials %s',
  '4.1 GET {web_url}/app/id/sign_in': 'spec/4-tokens: 4.1 redirects to redirect_uri with the query code and state',
  '4.1 POST {web_url}/app/id/oauth/token':
    'spec/4-tokens: 4.1 the code grant of the web flow takes client_id, client_secret, code and redirect_uri',
  '4.1 POST {web_url}/app/id/oauth/revoke': 'spec/4-tokens: 4.1 takes token, with Authorization: Bearer',
  '4.2': 'spec/4-permissions: 4.2 POST /v1/permissions gives what its body says',
  '4.3': 'spec/4-permissions: 4.3 PATCH %s replaces the full set',
  '4.4': 'spec/4-labels-and-webhooks: 4.4 request and response of v2 carry the parameters: what was set stays for %s',
  '4.5':
    'spec/4-labels-and-webhooks: 4.5 POST …/webhooks takes url, event_types and optional properties, and answers with the secret',

  '5.1':
    'spec/5-authentication: 5.1 the client id is the API key of a connect subscription, and goes with its secret alone',
  '5.2': 'spec/5-authentication: 5.2 key and secret are sent as Basic with base64 of key, a colon and secret',
  '5.3': 'spec/5-authentication: 5.3 the code is exchanged with client_id, client_secret and the same redirect_uri',
  '5.4': 'spec/5-authentication: 5.4 the challenge is the SHA-256 of the verifier: another verifier is refused',
  '5.5': 'spec/5-authentication: 5.5 %s %s needs Authorization: Bearer',
  '5.6': 'spec/5-authentication: 5.6 a token response says 660 seconds, whatever came before',
  '5.7':
    'spec/5-authentication: 5.7 permissions decide what a technical user may do: without %j a value is answered %i',
  '5.8':
    'spec/5-authentication: 5.8 a webhook’s source is verified by its signature, which nobody makes without the secret',
  '5.9': 'sandbox/strict: $rule: $what is answered $lax, and strictly $strict',

  '6.1': 'spec/6-delivery: 6.1 carries %s: %s= and the hex HMAC of the raw body with the webhook’s secret',
  '6.2': 'spec/6-delivery: 6.2 has event_type, occurred_at as an ISO 8601 timestamp, and content',
  '6.3': 'spec/6-event-contents: 6.3 there are 23',
  '6.3 asset_value_created':
    'spec/6-event-moments: 6.3 asset_value_created is one call for each value, with the value as a string',
  '6.3 asset_values_created':
    'spec/6-event-moments: 6.3 asset_values_created is one call for a post, its values grouped by key',
  '6.3 instrumentation_values_created':
    'spec/6-event-moments: 6.3 instrumentation_values_created is sent for an asset with an instrumentation, and for each of several',
  '6.3 asset_updated':
    'spec/6-event-moments: 6.3 asset_updated and edge_device_updated tell the attributes that changed, and nothing where none did',
  '6.3 asset_software_added':
    'spec/6-event-moments: 6.3 software, associations and add-on links that are there already are not told again',
  '6.3 asset_instrumentation_association_created':
    'spec/6-delivery: 6.2 asset_instrumentation_association_%s spells the time occured_at',
  '6.3 asset_instrumentation_association_destroyed':
    'spec/6-delivery: 6.2 asset_instrumentation_association_%s spells the time occured_at',
  '6.3 edge_device_updated':
    'spec/6-event-moments: 6.3 edge_device_updated is sent when the status goes automatically to offline',
  '6.3 asset_appeared': 'spec/6-event-moments: 6.3 %s_appeared is for read permission and no other',
  '6.3 asset_disappeared': 'spec/6-event-moments: 6.3 asset_disappeared is told for all child assets as well',
  '6.3 instrumentation_appeared': 'spec/6-event-moments: 6.3 %s_appeared is for read permission and no other',
  '6.3 instrumentation_disappeared':
    'spec/6-event-moments: 6.3 read permission that is lost is told, other permissions that are lost are not',
  '6.3 node_appeared': 'spec/6-event-moments: 6.3 %s_appeared is for read permission and no other',
  '6.3 node_disappeared':
    'spec/6-event-moments: 6.3 read permission that is lost is told, other permissions that are lost are not',
  '6.3 asset_specifications_updated':
    'spec/6-event-moments: 6.3 %s is one event for a request and webhook, with the changed keys alone',
  '6.3 event_specifications_updated':
    'spec/6-event-moments: 6.3 %s is one event for a request and webhook, with the changed keys alone',
  '6.3 event_created':
    'spec/6-event-moments: 6.3 event_created needs read permission on at least one asset or instrumentation: %s',
  '6.3 event_document_created':
    'spec/6-event-moments: 6.3 event_document_created is sent when a document is assigned, once',
  '6.3 asset_health_condition_updated':
    'spec/6-event-moments: 6.3 asset_health_condition_updated is sent when health conditions change, and not when they stay',
  '6.3 product_status_changed':
    'spec/6-event-moments: 6.3 product_status_changed needs an asset that is linked to the product',
  '6.3 threshold_reached':
    'spec/6-event-moments: 6.3 threshold_reached is sent when a %s threshold of %i is reached: %j',
  '6.3 add_on_node_association_created': 'spec/6-event-contents: 6.3 %s has the content of its row',
  '6.3 add_on_node_association_destroyed': 'spec/6-event-contents: 6.3 %s has the content of its row',

  '7': 'spec/client-events: 7 rejects a request whose signature does not match, and takes it once it does',
  '8': 'spec/7-errors-8-limits: 8 webhook delivery has 16 attempts over about 3 days',
  '9': 'spec/9-versions: 9 the SHA-1 signature is deprecated, and still there beside the other',
  '9 display labels v1': 'spec/9-versions: 9 the flat labels body of v1 is refused by v2, and the other way round',
  '9 permissions and owners v1':
    'spec/9-versions: 9 v2 gives several permission types at once, in one record for the pair',
  '9 tenants v1': 'spec/9-versions: 9 /v2/%s takes {users: [{email}]}',
  '9 user roles v1': 'spec/9-versions: 9 /v2/%s takes {users: [{email}]}',

  '10.1': 'spec/client-events: 6.2 reads the time of the association events, which spell it occured_at',
  '10.2': 'sandbox/values: is answered 204 without a body and can be read back, keys in lower case',
  '10.2 POST /v1/assets/{asset_id}/values is the':
    'spec/6-event-moments: 6.3 instrumentation_values_created is sent for an asset with an instrumentation, and for each of several',
  '10.2 {"values":[{"key","group"?,"unit"?:{"id"} or {"code"},"data":[{"timestamp"?,"value","status"?,"simulated"?,"hold"?}]}]}; status':
    'sandbox/values: keeps status, simulated and hold, and gives them back as they were posted',
  '10.2 Success is 204 with': 'sandbox/values: is answered 204 without a body and can be read back, keys in lower case',
  '10.2 Over 500 kB: 413.': 'sandbox/values: over 500 kB is 413, on the wire and unpacked',
  '10.2 A value without time':
    'sandbox/values: without timestamps the time of arrival counts, and of several only the last is kept',
  '10.2 The same time of':
    'sandbox/values: the same asset, key and timestamp again replaces the value and is counted as a duplicate',
  '10.3': 'uplink/verdict: stands in docs/verdicts.md row by row',
  '10.3 {"errors":[{"type","message","attribute"?}]}; token endpoints by':
    'sandbox/tokens: refuses in the words of RFC 6749 section 5.2',
  '10.3 400 invalid, 401 token,': 'uplink/verdict: stands in docs/verdicts.md row by row',
  '10.3 500 requests a minute':
    'sandbox/values: the 501st request of a user in a minute is 429, and the next minute begins anew',
  '10.3 Lists: page, per_page (1': 'sandbox/values: lists are paged by page and per_page from 1 to 100',
  '10.3 Some deployments want a': 'sandbox/assumptions: a header that holds the client id',
  '10.3 An expired access token':
    'sandbox/tokens: an expired access token cannot be revoked: its refresh token lives on',
  '10.3 Quota: GET /v1/api_subscriptions with': 'sandbox/values: a spent quota is 402',
  '10.4': 'webhook/registration: creates the webhook once and keeps its secret for its owner alone',
  '10.4 GET lists; POST 201':
    'sandbox/webhooks: are created with 201, Location and a secret that no reading gives again',
  '10.4 POST /{id}/reset_secret, no body,':
    'sandbox/webhooks: are changed and deleted with 204, and get a new secret by reset_secret',
  '10.4 GET /{id}/events: filters status,':
    'sandbox/webhooks: are listed with their payload, filtered, ordered and paged',
  '10.4 POST /{id}/events {"webhook_events":[{"id"}]}, 204;':
    'sandbox/webhooks: a resend starts the same schedule again, and pending ones are ignored',
  '10.4 force_sorted_delivery (default false). Thresholds':
    'sandbox/webhooks: with force_sorted_delivery a later event waits for the earlier one',
};

/** What the page says is not known, or is of gateways and not of the service. */
export const NO_ROWS: readonly string[] = ['10.2 A greatest age of', '10.5'];
