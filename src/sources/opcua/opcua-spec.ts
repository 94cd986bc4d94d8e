import type { Endpoint, Item } from '../../opcua/protocol.ts';

/** A server; what this gateway shows where nobody gave a certificate lies in the state folder. */
export interface OpcuaSpec extends Omit<Endpoint, 'identity'> {
  identity?: { certFile: string; keyFile: string };
}

export interface OpcuaValue extends Pick<Item, 'node' | 'index' | 'queueSize' | 'trigger'> {}
