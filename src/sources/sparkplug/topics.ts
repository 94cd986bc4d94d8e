/** Topics of Sparkplug B (Eclipse Sparkplug 3.0, chapter 4): `spBv1.0/group/type/node[/device]`. */
const NAMESPACE = 'spBv1.0';
const NODE_CONTROL = 'NCMD';

export interface NodeTopic {
  group: string;
  /** `DBIRTH`, and its like. */
  type: string;
  node: string;
  device: string | undefined;
}

/** Whose message it is; `undefined` where no node speaks: a host, or nobody who keeps to the specification. */
export function readTopic(topic: string): NodeTopic | undefined {
  const [space, group, type, node, device, ...more] = topic.split('/');
  if (space !== NAMESPACE || group === undefined || type === undefined || node === undefined) return undefined;
  // What hosts, and we, say to the node.
  if (more.length > 0 || type.endsWith('CMD')) return undefined;
  return { group, type, node, device };
}

/** What brings all that a node of a group says; left out, that of any. */
export function filterOf(group = '+', node = '+'): string {
  return `${NAMESPACE}/${group}/+/${node}/#`;
}

/** Where a node is told what to do. */
export function commandTopic(group: string, node: string): string {
  return `${NAMESPACE}/${group}/${NODE_CONTROL}/${node}`;
}
