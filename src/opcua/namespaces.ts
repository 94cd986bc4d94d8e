/** Namespaces of a server. Their indices may change when the server restarts; their URIs do not. */
import * as ua from 'node-opcua-client';

/** Standard form of a node ID with a namespace URI (OPC 10000-6, 5.1.12). */
const BY_URI = /^nsu=([^;]+);(.+)$/;
const BY_INDEX = /^ns=(\d+);/;

export class Namespaces {
  /** Namespace URIs by index. */
  readonly uris: readonly string[];
  readonly #first: readonly string[];

  /** `first`: the URIs in the first session, to which `ns=` node IDs refer. */
  constructor(uris: readonly string[], first: readonly string[] = []) {
    this.uris = uris;
    this.#first = first;
  }

  /** Throws if the server does not have the namespace, or a different one at this index. */
  nodeIdOf(node: string): ua.NodeId {
    const [, escapedUri, identifier] = BY_URI.exec(node) ?? [];
    if (escapedUri === undefined) {
      const index = Number(BY_INDEX.exec(node)?.[1] ?? 0);
      const [before, now] = [this.#first[index], this.uris[index]];
      if (before !== undefined && before !== now)
        throw new Error(
          `the server has renumbered its namespaces: ${index} was ${before} and is now ${now ?? 'unused'}`,
        );
      return ua.resolveNodeId(node);
    }
    const uri = escapedUri.replaceAll(/%3b/gi, ';').replaceAll('%25', '%');
    const index = this.uris.indexOf(uri);
    if (index === -1) throw new Error(`the server does not have the namespace ${uri}`);
    return ua.resolveNodeId(`ns=${index};${identifier}`);
  }

  /** Returns the node ID with its namespace URI, which remains valid if the server renumbers its namespaces. */
  textOf(nodeId: ua.NodeId): string {
    const text = nodeId.toString();
    const identifier = text.slice(text.indexOf(';') + 1);
    if (nodeId.namespace === 0) return identifier;
    const uri = this.uris[nodeId.namespace];
    return uri ? `nsu=${uri.replaceAll('%', '%25').replaceAll(';', '%3B')};${identifier}` : text;
  }
}
