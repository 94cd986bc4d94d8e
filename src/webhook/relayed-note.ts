/** Up to which number the events of the inbox were published for others: a note of it. None falls away before. */
export const RELAYED_NOTE = 'relayed';
