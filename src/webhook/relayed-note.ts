import type { SignatureHeaders } from './signature.ts';

/** Up to which number the events of the inbox were published for others: a note of it. None falls away before. */
export const RELAYED_NOTE = 'relayed';

/** One that is to be published, with the signatures that came with it. */
export interface RelayedEvent {
  id: number;
  identity: Uint8Array;
  payload: Uint8Array;
  signatures: SignatureHeaders;
}
