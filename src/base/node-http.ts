/**
 * Accesses Node's `http` without `fetch` and WebSocket. An `import` of `node:http` evaluates all exports, one of which
 * loads both and adds 13 MB and 20 ms. Type imports from `node:http` are fine.
 */
export const { Agent, createServer, request } = process.getBuiltinModule('node:http');

/** Trailer of a streamed response that failed. Contains the error as URI-encoded JSON. */
export const FAILURE_TRAILER = 'tagferry-failure';

/**
 * `Server` header of all responses on the control socket. Commands reject responses without it, because another program
 * may be using the socket.
 */
export const CONTROL_SERVER = 'tagferry';
