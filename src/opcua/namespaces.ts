/** Namespaces of a server. Their indices may change when the server restarts; their URIs do not. */
import { type NodeId, resolveNodeId } from 'node-opcua-client';

/** Standard form of a node ID with a namespace URI (OPC 10000-6, 5.1.12). */
const BY_URI = /^nsu=([^;]+);(.+)$/;

export class Namespaces {
  /** Namespace URIs by index. */
  readonly uris: readonly string[];

  constructor(uris: readonly string[]) {
    this.uris = uris;
  }

  /** Returns the node ID with this server's namespace index; `undefined` if the server does not have the namespace. */
  nodeIdOf(node: string): NodeId | undefined {
    const [, uri, identifier] = BY_URI.exec(node) ?? [];
    if (uri === undefined) return resolveNodeId(node);
    const index = this.uris.indexOf(unescaped(uri));
    return index === -1 ? undefined : resolveNodeId(`ns=${index};${identifier}`);
  }

  /** Like `nodeIdOf`, but throws if the server does not have the namespace. */
  existing(node: string): NodeId {
    const nodeId = this.nodeIdOf(node);
    if (nodeId === undefined) throw new Error(missingNamespace(node));
    return nodeId;
  }

  /** Returns the node ID with its namespace URI, which remains valid if the server renumbers its namespaces. */
  textOf(nodeId: NodeId): string {
    const { namespace } = nodeId;
    const uri = this.uris[namespace];
    const text = nodeId.toString();
    const identifier = text.slice(text.indexOf(';') + 1);
    if (namespace === 0) return identifier;
    return uri ? `nsu=${escaped(uri)};${identifier}` : text;
  }
}

const escaped = (uri: string): string => uri.replaceAll('%', '%25').replaceAll(';', '%3B');
const unescaped = (uri: string): string => uri.replaceAll(/%3b/gi, ';').replaceAll('%25', '%');

/** Describes why `Namespaces.nodeIdOf` returned no node ID. */
export function missingNamespace(node: string): string {
  return `the server does not have the namespace ${unescaped(BY_URI.exec(node)?.[1] ?? '')}`;
}
