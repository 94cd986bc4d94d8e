/** A topic to publish to: no wildcards; why not, where not. */
export function wrongTopic(topic: string): string | undefined {
  if (topic === '') return 'is empty';
  if (/[+#]/.test(topic)) return 'holds a wildcard (+ or #)';
  if (topic.includes('\u0000')) return 'holds a zero byte';
  return undefined;
}
