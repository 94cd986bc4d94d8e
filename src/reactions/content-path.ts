/** What an absurd payload may cost: no event of platform 6.3 comes near. */
const MAX_MATCHES = 10_000;
const MAX_SEGMENTS = 32;
/** Lists within lists need no segment each: only this keeps them from the end of the stack. */
const MAX_DEPTH = 100;

/**
 * Every value that a dotted path leads to: `data.value`, `values.0.key`. At an array a number takes that member, anything
 * else looks into every member ("any"). A member whose own name holds dots (specification keys do) is found as well.
 * Only own members count, so `__proto__` and the like lead nowhere.
 */
export function valuesAt(root: unknown, path: string): unknown[] {
  const found: unknown[] = [];
  const segments = path.split('.');
  if (segments.length <= MAX_SEGMENTS) collect(root, segments, found, 0);
  return found;
}

function collect(node: unknown, segments: readonly string[], found: unknown[], depth: number): void {
  if (found.length >= MAX_MATCHES || depth > MAX_DEPTH) return;
  if (segments.length === 0) {
    found.push(node);
    return;
  }
  if (Array.isArray(node)) {
    const [first, ...rest] = segments as [string, ...string[]];
    if (/^\d{1,9}$/.test(first)) {
      if (Number(first) < node.length) collect(node[Number(first)], rest, found, depth + 1);
    } else {
      for (const member of node) collect(member, segments, found, depth + 1);
    }
    return;
  }
  if (typeof node !== 'object' || node === null) return;
  for (let taken = 1; taken <= segments.length; taken++) {
    const name = segments.slice(0, taken).join('.');
    if (Object.hasOwn(node, name)) {
      collect((node as Record<string, unknown>)[name], segments.slice(taken), found, depth + 1);
    }
  }
}
