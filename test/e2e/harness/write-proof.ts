export { CONTROL_SERVER } from '../../../src/base/node-http.ts';
export { PROOF_FOLDER, prove } from '../../../src/control/write-proof.ts';
