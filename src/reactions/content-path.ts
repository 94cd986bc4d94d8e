/** Limits that protect against hostile payloads. */
const MAX_MATCHES = 10_000;
const MAX_SEGMENTS = 32;
/** Maximum nesting of lists, which consume no path segments and could otherwise overflow the stack. */
const MAX_DEPTH = 100;

/**
 * Returns all values at a dotted path: `data.value`, `values.0.key`. In an array, a number selects an element; any
 * other segment is looked up in all elements. Member names may contain dots, as specification keys do. Only own members
 * are found, which excludes `__proto__`.
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
  for (let length = 1; length <= segments.length; length++) {
    const name = segments.slice(0, length).join('.');
    if (Object.hasOwn(node, name)) {
      collect((node as Record<string, unknown>)[name], segments.slice(length), found, depth + 1);
    }
  }
}
