/**
 * Node's `http`, taken without the rest of the web. An `import` of `node:http` reads every export of it once, and one of
 * them loads the runtime's own `fetch`, WebSocket and all: 13 MB of memory and 20 ms that a gateway pays for nothing.
 * Types may be imported from `node:http` as ever.
 */
export const { Agent, createServer, request, STATUS_CODES } = process.getBuiltinModule('node:http');

/** Trailer of a streamed response that failed: why, as URI-encoded JSON. */
export const FAILURE_TRAILER = 'tagferry-failure';

/** `Server` of every response on the control socket. Verbs accept no other program there. */
export const CONTROL_SERVER = 'tagferry';
